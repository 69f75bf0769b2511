import { afterAll, afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Panes, type PaneActions } from "../src/graph/panes";
import { paintTogether } from "../src/graph/overlays/overlay";
import type { Overlay, Stages } from "../src/base/protocol";
import type { Cell } from "../src/base/wire";
import { Legend } from "../src/graph/overlays/legend";
import { column } from "./pictures";

const STAGES: Stages = {
  names: ["Original", "Fuse", "Merge"],
  changes: ["", "", ""],
  shown: 2,
  ...{ compared: "below", before: 1, comparisons: [0, 1] },
  ...{ beside: true, between: [], row: [1, 2], addable: [0] },
};
const BEFORE = column(["x", "conv", "norm", "relu"]);
const AFTER = column(["x", "conv", "relu"], {
  conv: { kind: "group", node: null, path: "stem", openable: true },
});

let actions: { [K in keyof PaneActions]: ReturnType<typeof vi.fn> };
let panes: Panes;

beforeEach(() => {
  actions = {
    select: vi.fn(),
    clear: vi.fn(),
    open: vi.fn(),
    close: vi.fn(),
    jump: vi.fn(),
    search: vi.fn(),
    keys: vi.fn(),
    back: vi.fn(),
    linked: vi.fn(),
    show: vi.fn(),
    moved: vi.fn(),
  };
  panes = new Panes(actions as PaneActions);
  document.body.append(panes.element);
  panes.graph.show(AFTER);
});

afterEach(() => {
  panes.dispose();
  document.body.replaceChildren();
});

/** The pane of the stage that is shown is the last. */
const pane = (name: "before" | "shown"): HTMLElement =>
  [...panes.element.querySelectorAll<HTMLElement>(".fxi-pane")].at(name === "shown" ? -1 : 0)!;
const graph = (name: "before" | "shown"): HTMLElement => pane(name).querySelector<HTMLElement>(".fxi-graph")!;
const selected = (name: "before" | "shown"): (string | undefined)[] =>
  [...pane(name).querySelectorAll<SVGElement>(".fxi-selected")].map((e) => e.dataset["box"]);
const note = (name: "before" | "shown"): string => pane(name).querySelector("[role=status]")!.textContent!;
const press = (name: "before" | "shown", key: string): boolean =>
  graph(name).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

function showBoth(): void {
  panes.setStages(STAGES);
  panes.showBeside([BEFORE]);
}

describe("one graph", () => {
  it("has no heading and no border", () => {
    panes.setStages({ ...STAGES, beside: false, row: [2] });
    expect(panes.element.querySelectorAll(".fxi-graph")).toHaveLength(1);
    expect(panes.element.querySelector("[role=separator]")).toBeNull();
    expect(pane("shown").querySelector<HTMLElement>(".fxi-pane-head")!.hidden).toBe(true);
    expect(graph("shown").getAttribute("aria-label")).not.toContain("next graph");
  });

  it("has nowhere to cross to", () => {
    graph("shown").focus();
    press("shown", "o");
    expect(document.activeElement).toBe(graph("shown"));
  });
});

describe("two stages side by side", () => {
  it("say which stages they are, in words and to screen readers", () => {
    showBoth();
    expect([...panes.element.querySelectorAll("h3")].map((e) => e.textContent)).toEqual([
      "1. Fuse",
      "2. Merge",
    ]);
    expect(pane("before").getAttribute("aria-label")).toBe("1. Fuse");
    expect(graph("shown").getAttribute("aria-label")).toContain("2. Merge");
    panes.setStages({ ...STAGES, before: 0, compared: 0, row: [0, 2] });
    expect(pane("before").getAttribute("aria-label")).toBe("Original");
  });

  it("show what is selected in both, and name what stands for it", () => {
    showBoth();
    panes.setSelected({ box: "conv", pane: 0, counterparts: [[], ["conv", "norm"]] });
    expect(selected("shown")).toEqual(["conv"]);
    expect(selected("before")).toEqual(["conv", "norm"]);
    expect(note("before")).toBe("Counterparts: conv, norm");
    expect(note("shown")).toBe("");
    panes.setSelected({ box: "norm", pane: 1, counterparts: [[]] });
    expect(selected("before")).toEqual(["norm"]);
    expect(selected("shown")).toEqual([]);
    expect(note("shown")).toBe("No counterpart");
    panes.setSelected({ box: null });
    expect([...selected("before"), ...selected("shown"), note("shown")].join("")).toBe("");
  });

  it("are crossed with a key, and walked through from the counterpart", () => {
    showBoth();
    panes.setSelected({ box: "conv", pane: 0, counterparts: [[], ["conv", "norm"]] });
    graph("shown").focus();
    press("shown", "o");
    expect(document.activeElement).toBe(graph("before"));
    press("before", "ArrowDown");
    expect(actions.select).toHaveBeenCalledWith(BEFORE.boxes["norm"], "norm", 1);
    press("before", "o");
    expect(document.activeElement).toBe(graph("shown"));
  });

  it("open the same group by its path", () => {
    showBoth();
    panes.setSelected({ box: "conv", pane: 0, counterparts: [[], []] });
    press("shown", "Enter");
    expect(actions.open).toHaveBeenCalledWith("stem");
  });

  it("are cleared together", () => {
    showBoth();
    panes.setSelected({ box: "conv", pane: 0, counterparts: [[], ["conv"]] });
    press("before", "Escape");
    expect(actions.clear).toHaveBeenCalledOnce();
    expect([...selected("before"), ...selected("shown")]).toEqual([]);
  });

  it("become one again, which takes the focus along", () => {
    showBoth();
    graph("before").focus();
    panes.showBeside([]);
    expect(panes.element.querySelectorAll(".fxi-graph")).toHaveLength(1);
    expect(panes.element.querySelector("[role=separator]")).toBeNull();
    expect(document.activeElement).toBe(graph("shown"));
    panes.setSelected({ box: "norm", pane: 1, counterparts: [["conv"]] });
    showBoth();
    expect(pane("before").querySelectorAll("[data-box=norm]").length).toBeGreaterThan(0);
  });
});

describe("two graphs that move together", () => {
  // Nothing is laid out in jsdom: each graph has a window of this size.
  const [width, height] = [400, 300];
  const sizes = [
    vi.spyOn(HTMLElement.prototype, "clientWidth", "get"),
    vi.spyOn(HTMLElement.prototype, "clientHeight", "get"),
  ];
  beforeEach(() => {
    sizes[0]!.mockReturnValue(width);
    sizes[1]!.mockReturnValue(height);
    panes.graph.show(AFTER);
    showBoth();
  });
  afterAll(() => sizes.forEach((size) => size.mockRestore()));

  const view = (name: "before" | "shown"): { x: number; y: number; scale: number } => {
    const [x, y, scale] = pane(name)
      .querySelector<HTMLElement>(".fxi-layer")!
      .style.transform.match(/-?[\d.]+(?:e-?\d+)?/g)!
      .map(Number) as [number, number, number];
    return { x, y, scale };
  };
  /** Where the middle of the box with a number lies in its window. */
  const placeOf = (name: "before" | "shown", number: number): number => {
    const { y, scale } = view(name);
    return y + (4 + 60 * number + 15) * scale;
  };

  it.each(["shown", "before"] as const)("zoom to the same size, whoever starts: %s", (name) => {
    press(name, "+");
    press(name, "+");
    expect(view("shown").scale).toBeCloseTo(view("before").scale);
    expect(view("shown").scale).toBeGreaterThan(1);
  });

  it("show the same box at the same place, though it lies elsewhere", () => {
    // The last box is the third there and the fourth here.
    press("shown", "+");
    press("shown", "+");
    const down = new KeyboardEvent("keydown", { key: "ArrowDown", shiftKey: true, bubbles: true });
    for (let i = 0; i < 8 && placeOf("shown", 2) > height / 2 + 40; i += 1)
      graph("shown").dispatchEvent(down);
    expect(Math.abs(placeOf("shown", 2) - height / 2)).toBeLessThan(60);
    expect(Math.abs(placeOf("before", 3) - placeOf("shown", 2))).toBeLessThan(30);
    expect(Math.abs(placeOf("before", 2) - placeOf("shown", 2))).toBeGreaterThan(60);
  });

  it("have what is selected at the same height, though nothing near it is in both", () => {
    panes.setSelected({ box: "conv", pane: 0, counterparts: [[], ["relu"]] });
    expect(placeOf("before", 3)).toBeCloseTo(placeOf("shown", 1));
    press("shown", "+");
    expect(placeOf("before", 3)).toBeCloseTo(placeOf("shown", 1));
  });

  it("are let go with a key, each moves by itself, and are linked where the key is pressed", () => {
    press("before", "l");
    expect(actions.linked).toHaveBeenLastCalledWith(false);
    expect(pane("before").querySelector("[aria-live=polite]")!.textContent).toBe(
      "Each graph moves by itself",
    );
    const still = view("shown");
    press("before", "+");
    expect(view("before").scale).not.toBeCloseTo(still.scale);
    expect(view("shown")).toEqual(still);
    press("before", "l");
    expect(actions.linked).toHaveBeenLastCalledWith(true);
    expect(view("shown").scale).toBeCloseTo(view("before").scale);
  });

  it("both show all of themselves", () => {
    press("shown", "+");
    press("shown", "f");
    for (const [name, { height: length }] of [
      ["shown", AFTER],
      ["before", BEFORE],
    ] as const) {
      const { y, scale } = view(name);
      expect(y + (scale * length) / 2).toBeCloseTo(height / 2);
      expect(scale * length).toBeLessThanOrEqual(height);
    }
  });

  it("have nothing to link where there is one", () => {
    panes.showBeside([]);
    press("shown", "l");
    expect(actions.linked).not.toHaveBeenCalled();
  });
});

describe("four stages in a row", () => {
  const ROW: Stages = {
    ...STAGES,
    ...{ names: ["Original", "Fuse", "Merge", "Fold", "Clean"], shown: 4, before: 0, compared: 0 },
    ...{ row: [0, 1, 2, 4], between: [1, 2], addable: [3] },
  };
  const heads = (): string[] => [...panes.element.querySelectorAll("h3")].map((e) => e.textContent!);
  const selectedIn = (): (string | undefined)[][] =>
    [...panes.element.querySelectorAll(".fxi-pane")].map((element) =>
      [...element.querySelectorAll<SVGElement>(".node.fxi-selected")].map((e) => e.dataset["box"]),
    );
  const choose = (at: number, value: string): void => {
    const select = panes.element.querySelectorAll<HTMLSelectElement>(".fxi-pane-head select")[at]!;
    select.value = value;
    select.dispatchEvent(new Event("change"));
  };
  beforeEach(() => {
    panes.setStages(ROW);
    panes.showBeside([BEFORE, AFTER, BEFORE]);
  });

  it("stand from left to right, the one that is shown last", () => {
    expect(heads()).toEqual(["Original", "1. Fuse", "2. Merge", "4. Clean"]);
  });

  it("show what is selected in one, and what stands for it in all others", () => {
    panes.setSelected({ box: "relu", pane: 2, counterparts: [["relu"], ["norm", "relu"], [], []] });
    expect(selectedIn()).toEqual([["norm", "relu"], ["relu"], [], ["relu"]]);
    const notes = [...panes.element.querySelectorAll(".fxi-pane-note")].map((e) => e.textContent);
    expect(notes).toEqual(["Counterparts: norm, relu", "", "No counterpart", "Counterpart: relu"]);
  });

  it("change their stages, and are closed one by one", () => {
    choose(1, "3");
    expect(actions.show).toHaveBeenLastCalledWith([0, 2, 4, 3]);
    choose(3, "3");
    expect(actions.show).toHaveBeenLastCalledWith([0, 1, 2, 3]);
    panes.element.querySelectorAll<HTMLElement>(".fxi-pane-head button")[3]!.click();
    expect(actions.show).toHaveBeenLastCalledWith([0, 1, 2]);
    graph("shown").focus();
    panes.setStages({ ...ROW, row: [0, 2, 4] });
    panes.showBeside([BEFORE, BEFORE]);
    expect(heads()).toEqual(["Original", "2. Merge", "4. Clean"]);
    expect(document.activeElement, "who stays keeps the focus").toBe(graph("shown"));
  });

  it("are crossed one after another", () => {
    graph("shown").focus();
    const graphs = [...panes.element.querySelectorAll(".fxi-graph")];
    for (const next of [graphs[0], graphs[1], graphs[2], graphs[3]]) {
      document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key: "o", bubbles: true }));
      expect(document.activeElement).toBe(next);
    }
  });
});

describe("the colours of two stages", () => {
  const overlay = (values: Record<string, Cell>, numeric = true): Overlay => ({
    name: "time",
    title: "Time",
    unit: "s",
    combine: "sum",
    numeric,
    total: 4,
    values,
  });
  const legend = new Legend(vi.fn(), vi.fn(), vi.fn());
  const heat = (name: "before" | "shown", id: string): string =>
    pane(name).querySelector<SVGElement>(`.node[data-box=${id}]`)!.style.getPropertyValue("--heat");

  it("are on one scale, with one legend", () => {
    showBoth();
    const painted = paintTogether([
      [overlay({ x: 1, relu: 2 }), AFTER],
      [overlay({ x: 4, norm: 2 }), BEFORE],
    ]);
    panes.setPaint(painted);
    expect([heat("shown", "x"), heat("shown", "relu"), heat("before", "norm"), heat("before", "x")]).toEqual([
      "0.250",
      "0.500",
      "0.500",
      "1.000",
    ]);
    expect(graph("before").classList).toContain("fxi-has-overlay");
    legend.show([AFTER, BEFORE], [], painted);
    expect([...legend.element.querySelectorAll("li")].map((e) => e.textContent)).toEqual(["Time", "0 s4 s"]);
  });

  it("have infinity as an end where all other values are the same", () => {
    showBoth();
    const painted = paintTogether([
      [overlay({ x: 0, relu: Infinity }), AFTER],
      [overlay({ x: 0 }), BEFORE],
    ]);
    panes.setPaint(painted);
    expect([heat("shown", "x"), heat("shown", "relu"), heat("before", "x")]).toEqual([
      "0.000",
      "1.000",
      "0.000",
    ]);
    legend.show([AFTER, BEFORE], [], painted);
    expect([...legend.element.querySelectorAll("li")].map((e) => e.textContent)).toEqual(["Time", "0 s∞"]);
  });

  it("have one number for a kind, however often it is on either side", () => {
    showBoth();
    const painted = paintTogether([
      [overlay({ x: "half", relu: "float" }, false), AFTER],
      [overlay({ x: "float", norm: "float" }, false), BEFORE],
    ]);
    panes.setPaint(painted);
    for (const [name, id] of [
      ["shown", "relu"],
      ["before", "x"],
      ["before", "norm"],
    ] as const)
      expect(pane(name).querySelector(`[data-box=${id}]`)!.classList).toContain("fxi-kind-0");
    legend.show([AFTER, BEFORE], [], painted);
    expect([...legend.element.querySelectorAll("li")].map((e) => e.textContent)).toEqual([
      "Time",
      "float",
      "half",
    ]);
  });

  it("write labels on boxes, and take them away", () => {
    showBoth();
    const labels = (): (string | null)[] =>
      [...panes.element.querySelectorAll(".fxi-overlay-label")].map((e) => e.textContent);
    const labelled = { ...overlay({ x: 1, relu: 2 }), labels: { relu: "npu 3" } };
    panes.setPaint(
      paintTogether([
        [labelled, AFTER],
        [overlay({ x: 1 }), BEFORE],
      ]),
    );
    expect(labels()).toEqual(["npu 3"]);
    panes.setPaint([]);
    expect(labels()).toEqual([]);
  });

  it("colour nothing where values are texts", () => {
    showBoth();
    const text = { ...overlay({ x: "spills" }, false), isText: true };
    const painted = paintTogether([
      [text, AFTER],
      [text, BEFORE],
    ]);
    panes.setPaint(painted);
    expect(painted[0]!.kinds).toEqual([]);
    expect(painted[0]!.boxes.get("x")!.words).toBe("Time: spills");
    expect(panes.element.querySelectorAll(".fxi-kind-0, .fxi-heat")).toHaveLength(0);
  });

  it("go together", () => {
    showBoth();
    panes.setPaint(
      paintTogether([
        [overlay({ x: 1 }), AFTER],
        [overlay({ x: 1 }), BEFORE],
      ]),
    );
    panes.setPaint([]);
    expect(panes.element.querySelectorAll(".fxi-heat, .fxi-plain, .fxi-has-overlay")).toHaveLength(0);
  });
});

describe("the legend of two stages", () => {
  it("explains the marks of both", () => {
    const legend = new Legend(vi.fn(), vi.fn(), vi.fn());
    const [after, before] = [
      column(["merged"], { merged: { marks: [0] } }),
      column(["norm"], { norm: { marks: [1] } }),
    ];
    const words = (): string[] => [...legend.element.querySelectorAll("li")].map((e) => e.textContent!);
    legend.show([after, before], [], []);
    expect(words()).toEqual(["+Added", "−Removed"]);
    legend.show([after], [], []);
    expect(words()).toEqual(["+Added"]);
  });
});
