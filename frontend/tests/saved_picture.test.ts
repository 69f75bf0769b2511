import { describe, expect, it } from "vitest";

import type { Overlay, Picture } from "../src/base/protocol";
import { column } from "./pictures";
import type { Cell, Look, Paints } from "../src/base/wire";
import type { PlacedBox } from "../src/viewer/drawing/boxes";
import { writeSvg } from "../src/viewer/drawing/svg";
import { dataOf, vectorsOf } from "./golden";
import { savedPicture, type Side } from "../src/graph/saved_picture";

const PAINTS: Paints = {
  heat: ["#ffffff", "#ff0000"],
  heatLine: "#800000",
  kinds: [],
  plain: ["#fefefe", "#cccccc"],
  changed: "#008000",
  ink: "#111111",
};
const overlay = (values: Record<string, Cell>): Overlay => ({
  name: "time",
  title: "Time",
  unit: "s",
  combine: "sum",
  numeric: true,
  total: 4,
  values,
});
const side = (picture: Picture, name: string, values?: Record<string, Cell>): Side => ({
  picture,
  name,
  overlay: values ? overlay(values) : null,
});
const BEFORE = column(["x", "norm", "relu"]);
const AFTER = column(["x", "relu"]);

function saved(...sides: [Side, ...Side[]]): Element & { size: [number, number] } {
  const { svg, width, height } = savedPicture(sides, PAINTS);
  const root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  return Object.assign(root, { size: [width, height] as [number, number] });
}

const fill = (root: Element, id: string): string | null =>
  root.querySelector(`[id="${id}"] .fx-shape`)!.getAttribute("fill");
const words = (root: Element): string[] => [...root.querySelectorAll("text")].map((e) => e.textContent!);

describe("a graph that is saved", () => {
  it("is the picture where nothing colours it", () => {
    const root = saved(side(AFTER, "after"));
    expect(root.size).toEqual([AFTER.width, AFTER.height]);
    expect(words(root)).toEqual(["x", "relu"]);
  });

  it("has the colours and a legend", () => {
    const root = saved(side(AFTER, "after", { x: 0, relu: 4 }));
    expect([fill(root, "x"), fill(root, "relu")]).toEqual(["#ffffff", "#ff0000"]);
    expect(words(root)).toEqual(["x", "relu", "Time", "0 s", "4 s"]);
    expect(root.getAttribute("height")).toBe(String(root.size[1]));
    expect(root.size[1]).toBeGreaterThan(AFTER.height);
  });

  it("explains lines that are drawn by dtype, in the colours of paper", () => {
    const lines = { title: "Lines: dtype", kinds: ["float32", "int64"] };
    const paints: Paints = { ...PAINTS, kinds: Array(8).fill(["#eeeeee", "#123456"]) };
    const { svg, height } = savedPicture([side({ ...AFTER, lines }, "after")], paints);
    const root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    expect(words(root)).toEqual(["x", "relu", "Lines: dtype", "float32", "int64"]);
    expect(height).toBeGreaterThan(AFTER.height);
  });
});

describe("two stages that are saved", () => {
  it("stand side by side, each below its name, and no id is there twice", () => {
    const root = saved(side(BEFORE, "Original"), side(AFTER, "1. Fuse"));
    expect(words(root)).toEqual(["Original", "x", "norm", "relu", "1. Fuse", "x", "relu"]);
    const [left, right] = [...root.querySelectorAll("svg")].map((e) => Number(e.getAttribute("x")));
    expect(right! - left!).toBeGreaterThan(BEFORE.width);
    expect(root.size[0]).toBeGreaterThanOrEqual(right! + AFTER.width);
    const ids = [...root.querySelectorAll("[id]")].map((e) => e.id);
    expect(new Set(ids).size).toBe(ids.length);
    expect(root.querySelector(".fx-legend")).toBeNull();
  });

  it("are coloured on one scale, with one legend", () => {
    const root = saved(side(BEFORE, "Original", { x: 4, norm: 2 }), side(AFTER, "1. Fuse", { x: 2 }));
    expect([fill(root, "stage-0-x"), fill(root, "stage-0-norm"), fill(root, "stage-1-x")]).toEqual([
      "#ff0000",
      "#ff8080",
      "#ff8080",
    ]);
    expect(fill(root, "stage-1-relu")).toBe("#fefefe");
    expect(root.querySelectorAll(".fx-legend")).toHaveLength(1);
  });
});

it("words of unknown width take the room that their box has for them, and are not squeezed into it", () => {
  const look = {
    title: ["שכבה", 50, false],
    lines: [["3 nodes", 40, true]],
    badge: ["1 changed", 45, true],
    classes: "cluster",
  } as Partial<Look>;
  const placed = { id: "a", box: { changed: 1 }, look } as PlacedBox;
  const group = '<g id="a" class="cluster"><path d="M0,0 300,0 300,90 0,90"/></g>';
  const laidOut = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 90"><g>${group}</g></svg>`;
  const { metrics } = dataOf(vectorsOf("bert"));
  const { svg } = writeSvg(laidOut, new Map([["a", placed]]), new Map(), metrics, false);
  const texts = new DOMParser().parseFromString(svg, "image/svg+xml").querySelectorAll("text");
  const found = [...texts].map((text) => [Number(text.getAttribute("x")), text.hasAttribute("textLength")]);
  expect(found).toEqual([
    [25, false],
    [25 + 50 + 8, true],
    [25 + 50 + 8 + 40 + 8 + (45 + 14) / 2, true],
  ]);
});
