/** Where the page looks: what holds after any gestures, with the page as a whole, and graphs that Graphviz lays out. */

import { Graphviz } from "@hpcc-js/wasm-graphviz";
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../src/app/app";
import { PANELS_AT_FIRST } from "../src/base/protocol";
import { LivePicture } from "../src/graph/live_picture";
import { overlap, type Rectangle } from "../src/base/rectangles";
import { inRow } from "../src/base/stages";
import { FakeKernel, FakeLayouts, Page, settled } from "./fake_kernel";
import { vectorsOf } from "./golden";
import type { StagesKnown, Tables } from "../src/base/wire";

const SEQUENCES = 20;
const STEPS = 6;
const FULL: Tables = {
  outputs: { state: "none", text: "", table: null },
  nodes: {
    text: "1 node",
    table: { columns: [{ name: "n", title: "Node", kind: "text" }], rows: [["a"]], total: 1 },
  },
};

let graphviz: Graphviz;
const laidOut = new Map<string, string>();
class RealLayouts extends FakeLayouts {
  override async layOut(dot: string): Promise<string> {
    if (!laidOut.has(dot)) laidOut.set(dot, graphviz.dot(dot));
    return laidOut.get(dot)!;
  }
}

const room = { width: 1280, height: 800 };
const observers = new Set<() => void>();
let kernel: FakeKernel;
let page: Page;
let app: App;
/** The stages when all passes are on, and what was written down of them. */
let known: StagesKnown;

/** Where a graph is: beside the panels that are open, in a part of the room if others are beside it. */
function windowOf(element: Element): Rectangle {
  if (!element.matches(".fxi-graph")) return { x: 0, y: 0, ...room };
  const { passes, details, tables } = element.closest<HTMLElement>(".fxi-main")!.dataset;
  const isWide = element.closest<HTMLElement>(".fxlab-inspector")!.dataset["layout"] === "wide";
  const left = passes === "open" ? 280 : 28;
  const width = room.width - left - (isWide ? (details === "open" ? 320 : 28) : 0);
  const height = room.height - 120 - (tables === "open" ? 230 : 34);
  const graphs = [...element.closest(".fxi-panes")!.querySelectorAll(".fxi-graph")];
  const across = width / graphs.length;
  return { x: left + graphs.indexOf(element) * across, y: 120, width: across, height };
}

function resized(): void {
  for (const told of [...observers]) told();
}

beforeAll(async () => {
  graphviz = await Graphviz.load();
});

beforeEach(() => {
  Object.assign(room, { width: 1280, height: 800 });
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(private readonly told: () => void) {}
      observe(): void {
        observers.add(this.told);
      }
      disconnect(): void {
        observers.delete(this.told);
      }
    },
  );
  const mocked = vi.spyOn(HTMLElement.prototype, "clientWidth", "get");
  mocked.mockImplementation(function (this: HTMLElement) {
    return windowOf(this).width;
  });
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockImplementation(function (this: HTMLElement) {
    return windowOf(this).height;
  });
  vi.spyOn(HTMLElement.prototype, "getBoundingClientRect").mockImplementation(function (this: HTMLElement) {
    const { x, y, width, height } = windowOf(this);
    return new DOMRect(x, y, width, height);
  });
});

afterEach(() => {
  app.dispose();
  document.body.replaceChildren();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

async function start(model: string): Promise<void> {
  const vectors = vectorsOf(model);
  known = vectors.steps.at(-1)!.stages;
  kernel = new FakeKernel(vectors);
  page = new Page(kernel, new RealLayouts());
  app = new App(page.viewer);
  document.body.append(app.element);
  await rest();
}

/** Waits until all panels have settled. */
async function rest(): Promise<void> {
  await settled();
  await new Promise((resolve) => setTimeout(resolve, 5));
  resized();
  resized();
}

/** The pane with the number 0 is the last. */
const graphOf = (pane = 0): HTMLElement =>
  [...app.element.querySelectorAll<HTMLElement>(".fxi-graph")].at(pane - 1)!;

/** What is in the window: its boxes, and how much of it the picture fills. */
function seen(pane = 0) {
  const element = graphOf(pane);
  const { width, height } = windowOf(element);
  const numbers = element
    .querySelector<HTMLElement>(".fxi-layer")!
    .style.transform.match(/-?[\d.]+(?:e-?\d+)?/g)!;
  const [x, y, scale] = numbers.map(Number) as [number, number, number];
  const picture = page.picture(pane);
  const live = new LivePicture(picture);
  const visible = { x: -x / scale, y: -y / scale, width: width / scale, height: height / scale };
  const boxes = [...live.areas].filter(([, area]) => overlap(area, visible)).map(([id]) => id);
  const share = (start: number, length: number, all: number): number =>
    Math.max(0, Math.min(start + length, all) - Math.max(start, 0)) / Math.min(length, all);
  const [across, down] = [share(x, picture.width * scale, width), share(y, picture.height * scale, height)];
  const fits = picture.width * scale <= width && picture.height * scale <= height;
  return {
    boxes,
    picture,
    filled: across * down,
    isWhole: across * down > 0.999,
    fits,
    viewport: { x, y, scale },
  };
}

async function switchTo(on: number): Promise<void> {
  kernel.switchTo(on);
  await settled();
  // What is measured of a pass arrives after the picture, and opens the tables.
  const none = { ...FULL, nodes: { text: "", table: { ...FULL.nodes.table, rows: [], total: 0 } } };
  kernel.put("tables", on > 0 ? FULL : none);
  await rest();
}

const nodes = (): string[] =>
  Object.values(page.get("picture").boxes).flatMap(({ node, kind }) => (node && kind === "op" ? [node] : []));
const groups = (kind: string): string[] =>
  Object.values(page.get("picture").boxes).flatMap((box) =>
    box.openable && (box.kind === "cluster") === (kind === "cluster") && box.path ? [box.path] : [],
  );

function click(id: string, pane = 0): void {
  const element = graphOf(pane).querySelector(`.node[data-box="${id}"], [data-box="${id}"]`)!;
  const at = { bubbles: true, button: 0, pointerId: 1 };
  element.dispatchEvent(new MouseEvent("pointerdown", at));
  window.dispatchEvent(new MouseEvent("pointerup", at));
}

describe("a pass that is switched on and off", () => {
  const places = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

  it.each(places)(
    "never empties the canvas, and off restores it, with the node at %d selected",
    async (place) => {
      await start("bert");
      await page.sends({ type: "open-level" }, { type: "open-level" });
      await rest();
      const name = nodes()[Math.floor(place * nodes().length)]!;
      await page.sends({ type: "select-node", name, show: true, pane: 0 });
      await rest();
      const was = seen();
      await switchTo(known.names.length - 1);
      expect(seen().boxes.length, "on").toBeGreaterThan(0);
      await switchTo(0);
      const is = seen();
      expect(is.boxes).toEqual(was.boxes);
      expect(is.viewport.x).toBeCloseTo(was.viewport.x);
      expect(is.viewport.y).toBeCloseTo(was.viewport.y);
      expect(is.viewport.scale).toBeCloseTo(was.viewport.scale);
      expect(page.get("details").name).toBe(name);
    },
  );
});

/** Returns numbers below a limit that look random, the same for the same seed. */
function randomly(seed: number): (below: number) => number {
  let state = seed * 2654435761 + 1;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return Math.abs(state ^ (state >>> 13)) % below;
  };
}

/** What somebody may do, in any order. */
const GESTURES: Record<string, (below: (limit: number) => number) => unknown> = {
  select: (below) => {
    const { boxes, picture } = seen();
    const some = boxes.filter((id) => picture.boxes[id]!.kind === "op");
    if (some.length) click(some[below(some.length)]!);
  },
  find: (below) => {
    const name = nodes()[below(nodes().length)];
    if (name) page.viewer.send({ type: "select-node", name, show: true, pane: 0 });
  },
  open: (below) => {
    const closed = groups("group");
    if (closed.length) page.viewer.send({ type: "open", path: closed[below(closed.length)]! });
  },
  close: (below) => {
    const opened = groups("cluster");
    if (opened.length) page.viewer.send({ type: "close", path: opened[below(opened.length)]! });
  },
  level: () => nodes().length < 40 && page.viewer.send({ type: "open-level" }),
  overview: () => page.viewer.send({ type: "overview" }),
  on: () => switchTo(known.names.length - 1),
  one: () => known.alone[1] !== undefined && switchTo(1),
  off: () => switchTo(0),
  resize: (below) => Object.assign(room, { width: 760 + 120 * below(10), height: 520 + 60 * below(10) }),
  panel: (below) => {
    const panels = page.get("panels");
    const name = (["passes", "details", "tables"] as const)[below(3)]!;
    page.viewer.set("panels", { ...panels, [name]: below(2) ? "open" : "folded" });
  },
  beside: (below) => {
    const { shown } = page.get("stages");
    const compared = below(shown + 1);
    if (known.pairs[`${shown}/${compared}`] !== undefined)
      page.viewer.send({
        ...{ type: "show-stage", stage: shown, compared, between: [] },
        beside: known.merged[`${shown}/${compared}`] === undefined || below(2) > 0,
      });
  },
  row: (below) => {
    const row = inRow(kernel.state.stages.names.map((_, stage) => stage).filter(() => below(3) > 0)).row;
    const isThere = row.slice(1).every((stage, i) => known.pairs[`${stage}/${row[i]}`] !== undefined);
    if (row.length > 1 && isThere) page.viewer.send({ type: "show-stage", ...inRow(row) });
  },
  other: (below) => {
    const pane = below(page.get("beside").length + 1);
    const { boxes, picture } = seen(pane);
    const some = boxes.filter((id) => picture.boxes[id]!.kind === "op");
    if (some.length) click(some[below(some.length)]!, pane);
  },
  shut: (below) => {
    const shut = [...app.element.querySelectorAll<HTMLElement>(".fxi-pane-head:not([hidden]) button")];
    if (shut.length > 2) shut[below(shut.length)]!.click();
  },
  stage: (below) => {
    const stage = below(kernel.state.stages.names.length);
    if (known.alone[stage] !== undefined)
      page.viewer.send({ type: "show-stage", stage, compared: "", beside: false, between: [] });
  },
};

describe("any gestures", () => {
  afterEach(() => page.viewer.set("panels", PANELS_AT_FIRST));

  it.each(Array.from({ length: SEQUENCES }, (_, i) => i + 1))(
    "keep what is looked at in sight: %d",
    async (seed) => {
      const below = randomly(seed);
      await start(["bert", "llama", "conv"][below(3)]!);
      const done: string[] = [];
      for (let step = 0; step < STEPS; step += 1) {
        const names = Object.keys(GESTURES);
        const name = names[below(names.length)]!;
        done.push(name);
        const on = kernel.state.stages.names.length;
        await GESTURES[name]!(below);
        await rest();
        const { boxes, picture, filled, fits, isWhole } = seen();
        const what = done.join(", ");
        const drawn = boxes.filter((id) => picture.boxes[id]!.kind !== "cluster");
        expect(drawn.length, `${what}: boxes in sight`).toBeGreaterThan(0);
        expect(filled, `${what}: filled`).toBeGreaterThan(0.5);
        if (fits) expect(isWhole, `${what}: a picture that fits is whole`).toBe(true);
        const { box, pane = 0, counterparts = [] } = page.get("details");
        if (box) expect(seen(pane).boxes, `${what}: what is selected is in sight`).toContain(box);
        const changed = Object.keys(picture.boxes).filter((id) => picture.boxes[id]!.marks.length > 0);
        if (kernel.state.stages.names.length > on && changed.length)
          expect(
            changed.some((id) => boxes.includes(id)),
            `${what}: a change in sight`,
          ).toBe(true);
        page.get("beside").forEach((_, i) => {
          const { boxes: beside } = seen(i + 1);
          expect(beside.length, `${what}: boxes in pane ${i + 1}`).toBeGreaterThan(0);
          const others = box && pane !== i + 1 ? (counterparts[i + 1] ?? []) : [];
          if (others.length)
            expect(
              others.some((id) => beside.includes(id)),
              `${what}: what stands for it in pane ${i + 1}`,
            ).toBe(true);
        });
      }
      expect(page.error).toBe("");
    },
  );
});
