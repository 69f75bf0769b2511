/** A training step as a picture of the page: columns, and lines of what is kept. */

import { Graphviz } from "@hpcc-js/wasm-graphviz";
import { beforeAll, expect, it } from "vitest";
import type { Picture } from "../src/base/protocol";
import type { Layouts } from "../src/viewer/drawing/layout";
import { LineStyles } from "../src/viewer/drawing/lines";
import { pictureOf } from "../src/viewer/drawing/picture";
import { Graphs } from "../src/viewer/graphs/graphs";
import { type Panes, PLAIN } from "../src/viewer/graphs/panes";
import { dataOf, vectorsOf } from "./golden";

const vectors = vectorsOf("step");
const data = dataOf(vectors);
const graphs = new Graphs(data, () => []);
let layouts: Pick<Layouts, "layOut">;

beforeAll(async () => {
  const graphviz = await Graphviz.load();
  layouts = { layOut: async (dot) => graphviz.dot(dot, "svg") };
});

async function drawn(panes: Panes): Promise<{ root: Element; picture: Picture }> {
  const lines = new LineStyles([panes.shown.view], "alike", data.paints);
  const how = { compared: false, preview: false, matches: {}, arrangement: PLAIN, lines };
  const picture = await pictureOf(data, layouts as Layouts, panes.shown, how);
  return { picture, root: new DOMParser().parseFromString(picture.svg, "image/svg+xml").documentElement };
}

const area = (root: Element, id: string): { left: number; right: number; middle: number } => {
  const shape = root.querySelector(`[id="${id}"] > .fx-shape`)!;
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(shape.getAttribute(name)));
  return { left: x!, right: x! + width!, middle: y! + height! / 2 };
};

it("has its columns beside one another, and both passes of a module at the same height", async () => {
  const panes = graphs.panesOf(0, new Map());
  for (const shown of [panes, panes.open("blocks.0")]) {
    const { root } = await drawn(shown);
    expect([...root.querySelectorAll(".fx-column > text")].map((text) => text.textContent)).toEqual([
      "Forward",
      "Backward",
      "Optimizer",
    ]);
    const { level } = shown.shown.view;
    expect(level.length).toBeGreaterThan(3);
    for (const [left, right] of level) {
      const [a, b] = [area(root, left.id), area(root, right.id)];
      expect(Math.abs(a.middle - b.middle)).toBeLessThan(1);
      expect(a.right).toBeLessThan(b.left);
    }
  }
});

it("says the bytes that are kept along a line, which is as thick", async () => {
  const { root, picture } = await drawn(graphs.panesOf(0, new Map()));
  const kept = [...root.querySelectorAll(".edge.fx-saved")];
  expect(kept.length).toBeGreaterThan(3);
  const widths = kept.map((edge) => Number(edge.querySelector("path")!.getAttribute("stroke-width")));
  const bytes = kept.map((edge) => parseFloat(edge.querySelector("text")!.textContent!));
  expect(Math.max(...widths)).toBe(5);
  expect(widths.indexOf(5)).toBe(bytes.indexOf(Math.max(...bytes)));
  // What is returned is words, and no line to the output but that of the loss.
  const output = Object.entries(picture.boxes).find(([, box]) => box.kind === "output")![0];
  expect(Object.values(picture.edges).filter(({ target }) => target === output)).toHaveLength(1);
});

it("opens a group alone whose other pass has not arrived yet", () => {
  const { trees } = dataOf(vectors);
  const backward = trees.findIndex(({ path }) => path === "blocks.0 (backward)");
  const late = vectorsOf("step");
  late.steps[0]!.part.trees[backward]!.children = null;
  const hidden = new Graphs(dataOf({ ...late, steps: late.steps.slice(0, 1) }), () => []);
  const opened = [...hidden.panesOf(0, new Map()).open("blocks.0").opened.keys()];
  expect(opened).toContain("blocks.0");
  expect(opened).not.toContain("blocks.0 (backward)");
  expect([...graphs.panesOf(0, new Map()).open("blocks.0").opened.keys()]).toContain("blocks.0 (backward)");
});
