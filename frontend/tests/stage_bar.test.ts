import { beforeEach, describe, expect, it, vi } from "vitest";
import type { LookedAt, Stages } from "../src/base/protocol";
import { inRow, possible } from "../src/base/stages";
import { StageBar } from "../src/panels/stage_bar";

const ALONE: Stages = {
  names: ["Original", "Fuse", "Merge"],
  changes: ["", "1 rewrite: 1 conv changed", "2 rewrites: 6 linears become 2"],
  shown: 2,
  compared: "",
  ...{ beside: false, between: [], row: [2], addable: [0, 1], before: null },
  comparisons: [0, 1],
};
const BESIDE: Stages = { ...ALONE, compared: "below", beside: true, before: 1, row: [1, 2], addable: [0] };

const wish = (stage: number, compared: LookedAt["compared"] = "", beside = false): LookedAt => ({
  ...{ stage, compared, beside, between: [] },
});
let shown: () => void = () => {};
const show = vi.fn((_: LookedAt) => new Promise<void>((done) => (shown = done)));
/** The stage that was asked for last is there, or will not be. */
const settle = async (): Promise<void> => {
  shown();
  await new Promise((done) => setTimeout(done));
};
const link = vi.fn();
const bar = new StageBar(show, link);
document.body.append(bar.element);
const button = (label: string): HTMLButtonElement =>
  [...bar.element.querySelectorAll("button")].find(
    (e) => (e.getAttribute("aria-label") ?? e.textContent) === label,
  )!;
const choose = (label: string, value: string): void => {
  const select = bar.element.querySelector<HTMLSelectElement>(`select[aria-label="${label}"]`)!;
  select.value = value;
  select.dispatchEvent(new Event("change"));
};

beforeEach(async () => {
  await settle();
  show.mockClear();
});

describe("the switch between one graph and two", () => {
  it("compares with the stage below if nothing is compared yet", () => {
    bar.update(ALONE);
    expect(button("One graph").getAttribute("aria-pressed")).toBe("true");
    button("Side by side").click();
    expect(show).toHaveBeenCalledWith(wish(2, "below", true));
  });

  it("leaves the comparison as it is", () => {
    bar.update({ ...BESIDE, compared: 0, before: 0 });
    button("One graph").click();
    expect(show).toHaveBeenCalledWith(wish(2, 0, false));
    button("Side by side").click();
    expect(show).toHaveBeenCalledOnce();
  });

  it("is not there where there is nothing to compare", () => {
    bar.update({ ...ALONE, shown: 0, comparisons: [] });
    expect(button("Side by side")).toBeUndefined();
  });

  it("keeps the focus when the bar is drawn anew", () => {
    bar.update(ALONE);
    button("Side by side").focus();
    bar.update(BESIDE);
    expect(document.activeElement).toBe(button("Side by side"));
  });
});

describe("the switch that lets both graphs move together", () => {
  it("is there for two graphs, and on", () => {
    bar.update(ALONE);
    expect(button("Move together")).toBeUndefined();
    bar.update(BESIDE);
    expect(button("Move together").getAttribute("aria-pressed")).toBe("true");
  });

  it("says what it is told, and asks for the opposite", () => {
    bar.update(BESIDE);
    button("Move together").click();
    expect(link).toHaveBeenLastCalledWith(false);
    bar.setLinked(false);
    bar.update({ ...BESIDE, compared: 0, before: 0 });
    expect(button("Move together").getAttribute("aria-pressed")).toBe("false");
    button("Move together").click();
    expect(link).toHaveBeenLastCalledWith(true);
  });
});

describe("choosing a stage and what it is compared with", () => {
  it("offers each stage below by its number", () => {
    bar.update(ALONE);
    const options = [
      ...bar.element.querySelectorAll<HTMLOptionElement>('[aria-label="Compare with"] option'),
    ];
    expect(options.map(({ value, textContent }) => [value, textContent])).toEqual([
      ["", "Not compared"],
      ["below", "vs. the stage below"],
      ["0", "vs. 0. Original"],
      ["1", "vs. 1. Fuse"],
    ]);
    choose("Compare with", "1");
    expect(show).toHaveBeenLastCalledWith(wish(2, 1, false));
    choose("Compare with", "below");
    expect(show).toHaveBeenLastCalledWith(wish(2, "below", false));
  });

  it("keeps two stages when another is chosen, and shows one when nothing is compared", () => {
    bar.update(BESIDE);
    choose("Stage of the graph", "1");
    expect(show).toHaveBeenLastCalledWith(wish(1, "below", true));
    choose("Compare with", "");
    expect(show).toHaveBeenLastCalledWith(wish(2, "", false));
    choose("Compare with", "0");
    expect(show).toHaveBeenLastCalledWith(wish(2, 0, true));
  });
});

describe("the choice of panes", () => {
  it("adds the latest stage below, or else the next above", () => {
    bar.update(ALONE);
    expect(button("Add a pane")).toBeUndefined();
    bar.update(BESIDE);
    button("Add a pane").click();
    expect(show.mock.lastCall![0]).toMatchObject({ stage: 2, compared: 0, beside: true, between: [1] });
    bar.update({ ...BESIDE, shown: 1, before: 0, row: [0, 1], addable: [2] });
    button("Add a pane").click();
    expect(show.mock.lastCall![0]).toMatchObject({ stage: 2, compared: 0, beside: true, between: [1] });
    bar.update({ ...BESIDE, compared: 0, before: 0, between: [1], row: [0, 1, 2], addable: [] });
    expect(button("Add a pane")).toBeUndefined();
  });

  it("keeps what stands between two stages as long as it does", () => {
    bar.update({ ...BESIDE, compared: 0, before: 0, between: [1], row: [0, 1, 2], addable: [] });
    choose("Stage of the graph", "1");
    expect(show).toHaveBeenLastCalledWith(wish(1, 0, true));
    button("One graph").click();
    expect(show).toHaveBeenLastCalledWith(wish(2, 0, false));
  });

  it("takes stages in any order, each once", () => {
    expect(inRow([3, 0, 3, 1])).toEqual({ ...wish(3, 0, true), between: [1], row: [0, 1, 3] });
    expect(inRow([2])).toEqual({ ...wish(2), row: [2] });
  });
});

describe("the slider through the stages", () => {
  const MANY: Stages = {
    names: ["Original", "Fuse", "Merge", "Fold", "Clean"],
    changes: ["", "", "2 rewrites: 6 linears become 2", "", "1 rewrite: 1 cos removed"],
    shown: 4,
    compared: "",
    ...{ beside: false, between: [], row: [4], addable: [], before: null },
    comparisons: [0, 1, 2, 3],
  };
  const slider = bar.element.querySelector<HTMLInputElement>("input[type=range]")!;
  const slideTo = (stage: number): void => {
    slider.value = String(stage);
    slider.dispatchEvent(new Event("input"));
  };
  /** Slides to a stage that the kernel then shows, whatever it compares it with. */
  const settleAt = async (stages: Stages, stage: number): Promise<void> => {
    slideTo(stage);
    const { stage: shown, compared, beside } = show.mock.lastCall![0];
    bar.update({
      ...stages,
      shown,
      compared,
      beside,
      comparisons: stages.comparisons.filter((number) => number < shown),
    });
    await settle();
  };

  it("has a stop for each stage, which it names", () => {
    bar.update(MANY);
    expect([slider.min, slider.max, slider.value]).toEqual(["0", "4", "4"]);
    expect(slider.getAttribute("aria-label")).toBe("Stage");
    expect(slider.getAttribute("aria-valuetext")).toBe("4. Clean: 1 rewrite: 1 cos removed");
    expect(
      [...bar.element.querySelectorAll<HTMLElement>(".fxi-tick")].map((tick) => [
        tick.textContent,
        tick.title,
      ]),
    ).toEqual([
      ["0", "0. Original"],
      ["1", "1. Fuse"],
      ["2", "2. Merge: 2 rewrites: 6 linears become 2"],
      ["3", "3. Fold"],
      ["4", "4. Clean: 1 rewrite: 1 cos removed"],
    ]);
  });

  it("is the same element while it is dragged", () => {
    bar.update(MANY);
    slider.focus();
    bar.update({ ...MANY, shown: 3 });
    expect(document.activeElement).toBe(slider);
    expect(slider.value).toBe("3");
  });

  it("asks for one stage after another, and leaves out what was passed meanwhile", async () => {
    bar.update(MANY);
    for (const stage of [3, 2, 1]) slideTo(stage);
    expect(show.mock.calls).toEqual([[wish(3)]]);
    bar.update({ ...MANY, shown: 3 });
    expect(slider.value, "it stays where the person has it").toBe("1");
    await settle();
    expect(show.mock.calls.slice(1)).toEqual([[wish(1)]]);
    bar.update({ ...MANY, shown: 1 });
    await settle();
    expect(show).toHaveBeenCalledTimes(2);
    expect(slider.value).toBe("1");
  });

  it("goes back to the stage that is shown if the other cannot be", async () => {
    bar.update(MANY);
    slideTo(2);
    await settle();
    expect(slider.value).toBe("4");
    expect(slider.getAttribute("aria-valuetext")).toBe("4. Clean: 1 rewrite: 1 cos removed");
    expect(show).toHaveBeenCalledOnce();
  });

  it.each([
    [
      "below",
      [
        [3, "below", true],
        [1, "below", true],
        [0, "", false],
        [2, "below", true],
      ],
    ],
    [
      2,
      [
        [3, 2, true],
        [1, "below", true],
        [0, "", false],
        [4, 2, true],
      ],
    ],
  ] as const)("keeps the comparison with %s while there is one", async (compared, expected) => {
    const from: Stages = { ...MANY, compared, beside: true, before: 2 };
    bar.update(from);
    for (const [stage] of expected) await settleAt(from, stage);
    expect(show.mock.calls).toEqual(
      expected.map(([stage, against, beside]) => [wish(stage, against, beside)]),
    );
  });
});

describe("the switch that leaves out stages without changes", () => {
  const SOME: Stages = {
    ...ALONE,
    names: ["Original", "Fuse", "Merge", "Clean"],
    changes: ["", "", "2 rewrites: 6 linears become 2", ""],
    shown: 2,
    comparisons: [0, 1],
  };
  const listed = (): string[] => [
    ...[...bar.element.querySelectorAll<HTMLElement>(".fxi-tick")].map((tick) => tick.textContent!),
  ];
  const options = (label: string): string[] =>
    [...bar.element.querySelectorAll<HTMLOptionElement>(`[aria-label="${label}"] option`)].map(
      ({ value }) => value,
    );

  it("is there where a stage has none", () => {
    bar.update(ALONE);
    expect(button("Only changes")).toBeUndefined();
    bar.update({ ...ALONE, changes: ["", "", "2 rewrites: 6 linears become 2"] });
    expect(button("Only changes")).toBeDefined();
    bar.update(SOME);
    expect(button("Only changes").getAttribute("aria-pressed")).toBe("false");
    expect(listed()).toEqual(["0", "1", "2", "3"]);
  });

  it("leaves them out, wherever stages are listed, and keeps what is shown", async () => {
    bar.update(SOME);
    button("Only changes").click();
    expect(listed()).toEqual(["0", "2"]);
    expect(options("Stage of the graph")).toEqual(["0", "2"]);
    expect(options("Compare with")).toEqual(["", "below", "0"]);
    const slider = bar.element.querySelector<HTMLInputElement>("input[type=range]")!;
    expect([slider.max, slider.value]).toEqual(["1", "1"]);
    slider.value = "0";
    slider.dispatchEvent(new Event("input"));
    expect(show).toHaveBeenLastCalledWith(wish(0, "", false));
    bar.update({ ...SOME, shown: 3, row: [3], comparisons: [0, 1, 2] });
    await settle();
    expect(listed()).toEqual(["0", "2", "3"]);
    button("Only changes").click();
    expect(listed()).toEqual(["0", "1", "2", "3"]);
  });
});

it.each<["" | "below" | number, ("" | "below" | number)[]]>([
  ["", ["", "", "", "", ""]],
  ["below", ["", "below", "below", "below", "below"]],
  [0, ["", 0, 0, 0, 0]],
  [2, ["", "below", "below", 2, 2]],
])("compared with %j, a comparison stays while there is one", (compared, expected) => {
  for (const beside of [false, true]) {
    const found = expected.map((_, stage) => possible({ compared, beside, between: [] }, stage));
    expect(found.map((wish) => wish.compared)).toEqual(expected);
    expect(found.map((wish) => wish.beside)).toEqual(expected.map((kept) => beside && kept !== ""));
  }
});
