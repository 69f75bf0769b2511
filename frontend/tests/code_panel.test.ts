import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Code, Stages } from "../src/base/protocol";
import { CodePanel } from "../src/code/code_panel";
import { FakeKernel, Page } from "./fake_kernel";
import type { CodeChange } from "../src/base/wire";

const NAMES = ["Original", "Merge linears"];
const STAGES: Stages = {
  ...{ names: NAMES, shown: 1, compared: "below", before: 0, comparisons: [0], changes: [] },
  ...{ beside: false, between: [], row: [1], addable: [] },
  preview: null,
};
const HOSTILE = "<img src=x onerror=hacked>";

function codeOf(
  before: [string, string][] | null,
  after: [string, string][],
  runs: [CodeChange, number][],
): Code {
  const lines = (of: [string, string][]): Code["after"] =>
    of.map(([text, node]) => ({ text, nodes: node ? [node] : [] }));
  return {
    ...{ state: "ready", text: "", isLinked: true, runs },
    after: lines(after),
    before: before && lines(before),
  };
}

const equal = Array.from({ length: 20 }, (_, i): [string, string] => [`n${i} = f()`, `n${i}`]);
const COMPARED = codeOf(
  [...equal, ["x = relu(n19)", "x"], ["gone = 1", "gone"]],
  [...equal, ["x = tanh(n19)", "x"], [HOSTILE, "new"]],
  [
    ["same", 20],
    ["changed", 1],
    ["removed", 1],
    ["added", 1],
  ],
);

const AT_ONCE = 100;

describe("the code", () => {
  let panel: CodePanel;
  const jump = vi.fn();
  const look = vi.fn();

  beforeEach(() => {
    vi.clearAllMocks();
    panel = new CodePanel({ jump, look }, AT_ONCE);
    document.body.replaceChildren(panel.element);
    panel.showStages(STAGES);
    panel.setOpen(true);
  });

  const cells = (): HTMLElement[] => [...panel.element.querySelectorAll<HTMLElement>(".fxi-code-cell")];
  const words = (): string => panel.element.querySelector(".fxi-code-bar")!.textContent!;
  const fold = (): HTMLElement | null => panel.element.querySelector(".fxi-code-fold > button");
  const button = (name: string): HTMLButtonElement =>
    [...panel.element.querySelectorAll<HTMLButtonElement>("button")].find((b) => b.textContent === name)!;
  const press = (target: Element, key: string): boolean =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

  it("is asked for when somebody looks at it, and not again", () => {
    panel.setOpen(true);
    expect(look.mock.calls).toEqual([[true]]);
    panel.setOpen(false);
    expect(look.mock.calls).toEqual([[true], [false]]);
  });

  it("says what is compared and how much differs", () => {
    panel.show(COMPARED);
    expect(words()).toContain("Original → 1. Merge linears: 1 changed, 1 removed, 1 added · 22 lines");
  });

  it("has removed and added lines as such, and marks the words of those that changed", () => {
    panel.show(COMPARED);
    expect([...panel.element.querySelectorAll("del")].map((e) => e.textContent)).toEqual([
      "x = relu(n19)",
      "gone = 1",
    ]);
    expect([...panel.element.querySelectorAll("ins")].map((e) => e.textContent)).toEqual([
      "x = tanh(n19)",
      HOSTILE,
    ]);
    expect([...panel.element.querySelectorAll("mark")].map((e) => e.textContent)).toEqual(["relu", "tanh"]);
    expect(panel.element.querySelector("img")).toBeNull();
  });

  it("folds equal lines, and unfolds them where the focus stays", () => {
    panel.show(COMPARED);
    expect(fold()!.textContent).toBe("17 equal lines");
    fold()!.focus();
    fold()!.click();
    expect(fold()).toBeNull();
    expect(panel.element.textContent).toContain("n0 = f()");
    expect((document.activeElement as HTMLElement).dataset["line"]).toBe("1");
    expect(button("Show all lines").hidden).toBe(true);
  });

  it("leads from a line to its node on its side, by a click or by Enter", () => {
    panel.show(COMPARED);
    const of = (text: string): HTMLElement => cells().find((cell) => cell.textContent === text)!;
    of("gone = 1").click();
    press(of(HOSTILE), "Enter");
    expect(jump.mock.calls).toEqual([
      ["gone", true],
      ["new", false],
    ]);
  });

  it("is gone through with the arrow keys, one cell being reached with Tab", () => {
    panel.show(COMPARED);
    const reachable = (): HTMLElement[] => [
      ...panel.element.querySelectorAll<HTMLElement>("[role=grid] [tabindex='0']"),
    ];
    expect(reachable()).toHaveLength(1);
    const first = cells()[0]!;
    first.focus();
    press(first, "ArrowRight");
    expect((document.activeElement as HTMLElement).dataset["side"]).toBe("after");
    press(document.activeElement!, "ArrowDown");
    expect((document.activeElement as HTMLElement).dataset["line"]).toBe("19");
    press(document.activeElement!, "Home");
    expect(document.activeElement).toBe(fold());
    press(document.activeElement!, "End");
    expect((document.activeElement as HTMLElement).textContent).toBe(HOSTILE);
    expect(reachable()).toEqual([document.activeElement]);
  });

  it("marks the lines of what is selected, and unfolds those that are folded", () => {
    panel.show(COMPARED);
    const marked = (): string[] =>
      [...panel.element.querySelectorAll("[aria-selected=true]")].map((cell) => cell.textContent!);
    panel.setSelected({ shown: ["n2"], before: ["n2"] });
    expect(marked()).toEqual(["n2 = f()", "n2 = f()"]);
    panel.setSelected({ shown: ["x"], before: [] });
    expect(marked()).toEqual(["x = tanh(n19)"]);
    button("Unified").click();
    expect(marked()).toEqual(["x = tanh(n19)"]);
    panel.setSelected({ shown: [], before: [] });
    expect(marked()).toEqual([]);
  });

  it("unfolds only what is around a selected line of thousands", () => {
    const long = Array.from({ length: 20_000 }, (_, i): [string, string] => [`n${i} = f()`, `n${i}`]);
    panel.showStages({ ...STAGES, before: null, compared: "" });
    panel.show(codeOf(null, long, []));
    expect(cells()).toHaveLength(AT_ONCE);
    expect(words()).toContain("1. Merge linears: 20,000 lines");
    panel.setSelected({ shown: ["n15000"], before: [] });
    expect(panel.element.querySelector("[aria-selected=true]")!.textContent).toBe("n15000 = f()");
    expect(cells()).toHaveLength(AT_ONCE + 40);
    expect(panel.element.querySelectorAll(".fxi-code-fold")).toHaveLength(2);
  }, 30_000);

  it("does not call lines equal that are too many to be shown", () => {
    const [old, now] = ["a", "b"].map((word) =>
      Array.from({ length: AT_ONCE + 10 }, (_, i): [string, string] => [`n${i} = ${word}`, `n${i}`]),
    );
    panel.show(codeOf(old!, now!, [["changed", AT_ONCE + 10]]));
    expect(fold()!.textContent).toBe("10 more lines");
  });

  it("says where it comes from no torch that ties lines to nodes", () => {
    panel.show({ ...codeOf(null, [["x = 1", ""]], []), isLinked: false });
    expect(words()).toContain("lead nowhere");
    cells()[0]!.click();
    expect(jump).not.toHaveBeenCalled();
    panel.show({ ...codeOf(null, [], []), state: "failed", text: "No code." });
    expect(words()).toContain("No code.");
  });
});

describe("the code of a page", () => {
  const asked = (kernel: FakeKernel): unknown[] => kernel.askedFor("code");
  const texts = (page: Page): string[] => page.get("code").after.map(({ text }) => text.trim());

  it("is not asked for before somebody looks at it, and once for what is shown", async () => {
    const kernel = new FakeKernel(undefined, { on: 2 });
    const page = await Page.of(kernel);
    expect(asked(kernel)).toEqual([]);
    await page.sends({ type: "show-code", on: true });
    expect(asked(kernel)).toEqual([{ type: "code", version: 1, stage: 2, before: null }]);
    expect(page.get("code").state).toBe("ready");
    expect(texts(page)[0]).toMatch(/^def forward\(self, /);
    await page.sends({ type: "show-code", on: false }, { type: "show-code", on: true });
    expect(asked(kernel)).toHaveLength(1);
  });

  it("follows what is compared, and leads to nodes of both stages", async () => {
    const kernel = new FakeKernel(undefined, { on: 2 });
    const page = await Page.of(kernel);
    await page.sends({ type: "show-code", on: true });
    await page.sends({ type: "show-stage", stage: 2, compared: 0, beside: true, between: [] });
    const { before, after, runs } = page.get("code");
    expect(runs.some(([kind]) => kind !== "same")).toBe(true);
    const length = (...kinds: string[]): number =>
      runs.reduce((sum, [kind, count]) => (kinds.includes(kind) ? sum + count : sum), 0);
    expect(length("same", "changed", "removed")).toBe(before!.length);
    expect(length("same", "changed", "added")).toBe(after.length);
    expect(page.get("beside")).toHaveLength(1);
    const node = before!.flatMap(({ nodes }) => nodes).at(-2)!;
    await page.sends({ type: "select-node", name: node, show: true, pane: 1 });
    expect(page.get("selected").before).toEqual([node]);
  });

  it("stays as it is when a kernel fails, and says so", async () => {
    const kernel = new FakeKernel();
    kernel.failing.add("code");
    const page = await Page.of(kernel);
    await page.sends({ type: "show-code", on: true });
    expect(page.get("code").state).toBe("failed");
  });

  it("of a stage that is not shown any more does not come late", async () => {
    const kernel = new FakeKernel(undefined, { on: 2 });
    const page = await Page.of(kernel);
    kernel.held.add("code");
    await page.sends({ type: "show-code", on: true });
    expect(page.get("code").state).toBe("pending");
    await page.sends({ type: "show-stage", stage: 0, compared: "", beside: false, between: [] });
    kernel.release();
    await page.sends({ type: "overview" });
    expect(page.get("code").state).toBe("ready");
    const names = new Set(page.get("code").after.flatMap(({ nodes }) => nodes));
    expect(names.size).toBe(kernel.data.graphs[kernel.state.stages.alone[0]!]!.order.length);
  });

  it("marks all nodes of a selected group", async () => {
    const page = await Page.of(new FakeKernel());
    const path = Object.values(page.get("picture").boxes).find(
      ({ kind }) => kind === "cluster" || kind === "group",
    )!.path;
    await page.sends({ type: "select-group", path, pane: 0 });
    expect(page.get("selected").shown.length).toBeGreaterThan(1);
    expect(page.get("selected").before).toEqual(page.get("selected").shown);
    await page.sends({ type: "clear-selection" });
    expect(page.get("selected").shown).toEqual([]);
  });
});
