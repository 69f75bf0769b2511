import { beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../src/app/app";
import { Bench } from "../src/app/bench";
import type { Box, Details, Model, ToViewer } from "../src/base/protocol";
import type { OthersFound, ShownNearMiss, ShownRewrite } from "../src/base/wire";
import { FakeKernel, Page, settled } from "./fake_kernel";
import { vectorsOf } from "./golden";
import { pass } from "./passes";

const REWRITE: ShownRewrite = {
  ...{ number: 1, total: 3, stage: 2, node: "a", isExcluded: false, modules: [] },
  ...{ before: ["a = torch.relu(x) # <b>"], after: ["b = x"], roles: { a: "picked", b: "picked" } },
};
const MISS: ShownNearMiss = {
  ...{ words: "2 of 2 calls fit; <b> is 3", stage: 0, node: "mul", roles: { relu: "fits", mul: "misfit" } },
  relaxed: [{ words: "Capture 2 as a number", source: "def pattern(x): ..." }],
};
const OTHERS: OthersFound = {
  ...{ nodes: ["relu"], pattern: "def pattern(x): ...", source: "import torch", count: 3, stage: 0 },
  chips: [{ key: "mul:0", words: "2 in mul", chosen: "exact", options: ["exact", "captured"] }],
  modules: [
    { name: "a.<b>", count: 2 },
    { name: "c", count: 1 },
  ],
  ...{ roles: { relu: "picked", relu_1: "fits" }, replaced: null },
};
const STAGES = { names: ["", "one", "two"], shown: 2, compared: "", beside: false, between: [] };

describe("the workbench", () => {
  const sent: ToViewer[] = [];
  const [limit, showCode] = [vi.fn(), vi.fn()];
  let bench: Bench;
  const asked = (): (ToViewer & { type: "ask" })[] => sent.filter((message) => message.type === "ask");
  const answer = (rest: Partial<ShownRewrite> = {}): void =>
    bench.answered(asked().at(-1)!.request, { ...REWRITE, ...rest });
  const press = (words: string): void =>
    [...bench.element.querySelectorAll("button")].find((e) => e.textContent === words)!.click();
  const slide = (to: number): void => {
    const slider = bench.element.querySelector("input")!;
    slider.value = String(to);
    slider.dispatchEvent(new Event("input"));
  };

  beforeEach(() => {
    sent.length = 0;
    limit.mockClear();
    let number = 0;
    const model = { get: () => STAGES } as unknown as Model;
    bench = new Bench(model, {
      send: (message) => sent.push(message),
      request: () => `r${(number += 1)}`,
      limit,
      showCode,
    });
    bench.step(pass("s", { on: true, steps: 3, stage: 2 }));
  });

  it("shows lines before and after as text, and lights the nodes up in the comparison", () => {
    expect(asked()[0]!.message).toEqual({ type: "rewrite", signature: "s", number: 1 });
    answer();
    expect(bench.element.querySelector("[role=status]")!.textContent).toBe("Rewrite of Pass s: 1 of 3");
    expect([...bench.element.querySelectorAll("pre")].map((e) => e.textContent)).toEqual([
      "a = torch.relu(x) # <b>",
      "b = x",
    ]);
    expect(sent.at(-1)).toEqual({
      type: "light",
      stage: 2,
      compared: "below",
      roles: REWRITE.roles,
      show: true,
    });
  });

  it("asks for the last number that was chosen while one was on its way", () => {
    answer();
    slide(2);
    slide(3);
    expect(asked().map(({ message }) => "number" in message && message.number)).toEqual([1, 2]);
    answer({ number: 2 });
    expect(asked().at(-1)!.message).toMatchObject({ number: 3 });
    answer({ number: 3 });
    expect(bench.element.querySelector("[role=status]")!.textContent).toContain("3 of 3");
  });

  it("excludes one, applies up to one, and follows the pass under its new signature", () => {
    answer({ number: 2 });
    press("This one is wrong");
    expect(limit).toHaveBeenCalledWith("s", "a", false);
    press("Apply up to 2");
    expect(sent.at(-1)).toEqual({ type: "apply-up-to", signature: "s", count: 2 });
    bench.follow([pass("t", { key: "s", on: true, steps: 3, stage: 2 })]);
    expect(asked().at(-1)!.message).toEqual({ type: "rewrite", signature: "t", number: 2 });
    answer({ number: 2, isExcluded: true });
    press("Include it again");
    expect(limit).toHaveBeenLastCalledWith("t", "a", true);
  });

  it("shows a test of what is looked at, to be copied, until something else is", () => {
    const python = (): string | undefined =>
      bench.element.querySelector("section[aria-label=Test]:not([hidden]) pre")?.textContent;
    const written = (text: string | null): void => bench.answered(asked().at(-1)!.request, text);
    answer();
    press("Copy as a test");
    expect(asked().at(-1)!.message).toEqual({ type: "as-test", signature: "s", node: "a" });
    written("def test_<b>(): ...");
    expect(python()).toBe("def test_<b>(): ...");
    slide(2);
    answer({ number: 2 });
    expect(python()).toBeUndefined();
    bench.whyNot(pass("m"), "relu");
    bench.answered(asked().at(-1)!.request, MISS);
    const [, ofMiss] = bench.element.querySelectorAll<HTMLElement>("[title^='Show and copy a test']");
    ofMiss!.click();
    expect(asked().at(-1)!.message).toEqual({ type: "as-test", signature: "m", node: "relu" });
    written(null);
    expect(python(), "the error is said elsewhere").toBeUndefined();
  });

  it("gives way to a near miss, of which the misfit is told in words", () => {
    answer();
    bench.whyNot(pass("m", { name: "Mine" }), "relu");
    expect(asked().at(-1)!.message).toEqual({ type: "near-miss", signature: "m", node: "relu" });
    bench.answered(asked().at(-1)!.request, MISS);
    const [rewrites, miss] = [...bench.element.querySelectorAll("section")];
    expect([rewrites!.hidden, miss!.hidden]).toEqual([true, false]);
    expect(miss!.querySelector("[role=status]")!.textContent).toBe(`Mine: ${MISS.words}`);
    expect([...miss!.querySelectorAll("li")].map((e) => e.textContent)).toEqual(["Fits", "Does not fit"]);
    expect(sent.at(-1)).toEqual({ type: "light", stage: 0, compared: "", roles: MISS.roles, show: true });
    press("Show in code");
    expect(showCode).toHaveBeenCalledWith("mul");
    expect(miss!.querySelector("pre")!.textContent).toBe(MISS.relaxed[0]!.source);
    press("Add to the session");
    expect(sent.at(-1)).toEqual({ type: "add-relaxed", signature: "m", node: "relu", number: 0 });
  });

  it("stays as it is where a near miss cannot be told", () => {
    answer();
    bench.whyNot(pass("m"), "relu");
    bench.answered(asked().at(-1)!.request, null);
    expect(bench.element.querySelector("section")!.hidden).toBe(false);
  });

  it("adds boxes to a selection, takes them out, and finds others", () => {
    const picked = (names: string[]): void => bench.answered(nodesOf().at(-1)!.request, names);
    const nodesOf = (): (ToViewer & { type: "nodes-of" })[] =>
      sent.filter((message) => message.type === "nodes-of");
    const status = (): string => bench.element.querySelectorAll("[role=status]")[2]!.textContent!;
    const box = { node: "mul", path: "" } as Box;
    bench.pick([box], { kind: "node", name: "relu", pane: 0 } as Details);
    expect(nodesOf().map(({ selected }) => selected.name)).toEqual(["relu", "mul"]);
    bench.answered(nodesOf()[0]!.request, ["relu"]);
    picked(["mul"]);
    expect(status()).toContain("2 nodes selected");
    const roles = { relu: "picked", mul: "picked" };
    expect(sent.at(-1)).toEqual({ type: "light", stage: null, compared: "", roles, show: false });
    bench.pick([box], null);
    picked(["mul"]);
    expect(status()).toContain("1 node selected");
    press("New pass");
    expect(asked().at(-1)!.message).toEqual({ type: "new-pass", nodes: ["relu"], choices: {} });
    press("Find others");
    const wish = { type: "find-others", nodes: ["relu"], between: false, choices: {}, replacement: "" };
    expect(asked().map(({ message }) => message)).toContainEqual(wish);
    bench.answered(asked().at(-1)!.request, OTHERS);
    expect(status()).toBe("1 node selected: 3 places in all");
    expect([...bench.element.querySelectorAll(".fxi-places li")].map((e) => e.textContent)).toEqual([
      "a.<b>2",
      "c1",
    ]);
    const select = bench.element.querySelector("select")!;
    select.value = "captured";
    select.dispatchEvent(new Event("change"));
    expect(asked().at(-1)!.message).toEqual({ ...wish, choices: { "mul:0": "captured" } });
    const field = bench.element.querySelector<HTMLInputElement>("input[type=text]")!;
    document.body.append(bench.element);
    field.focus();
    bench.answered(asked().at(-1)!.request, OTHERS);
    expect(document.activeElement, "who types goes on typing when the answer comes").toBe(field);
    field.value = "F.relu6";
    field.form!.requestSubmit();
    const replacing = { ...wish, choices: { "mul:0": "captured" }, replacement: "F.relu6" };
    expect(asked().at(-1)!.message).toEqual(replacing);
    expect([...bench.element.querySelectorAll("button")].map((e) => e.textContent)).not.toContain(
      "Add to the session",
    );
    const replaced = { words: "The same results at 3 of 3 places.", canAdd: true };
    bench.answered(asked().at(-1)!.request, { ...OTHERS, replaced });
    press("Add to the session");
    const { nodes, choices, replacement } = replacing;
    expect(sent.at(-1)).toEqual({ type: "add-others", nodes, choices, replacement });
  });

  it("ends with the pass, and shows the stages as before when it is closed", () => {
    bench.follow([pass("s", { on: true, steps: 3, stage: 2 })]);
    answer();
    bench.follow([pass("s")]);
    expect(bench.isOpen).toBe(false);
    const gone = { type: "light", stage: null, compared: "", roles: {}, show: true };
    expect(sent.at(-1), "the session shows its last stage").toEqual(gone);
    bench.step(pass("s", { on: true, steps: 3, stage: 2 }));
    answer();
    STAGES.compared = "below";
    bench.close();
    STAGES.compared = "";
    expect(sent.slice(-2)).toEqual([
      gone,
      { type: "show-stage", stage: 2, compared: "", beside: false, between: [] },
    ]);
  });

  it("forgets what was found in another stack", () => {
    bench.whyNot(pass("m"), "relu");
    bench.answered(asked().at(-1)!.request, MISS);
    bench.follow([pass("m"), pass("other")]);
    expect(bench.isOpen).toBe(true);
    bench.follow([pass("m"), pass("other", { on: true })]);
    expect(bench.isOpen).toBe(false);
  });
});

describe("boxes that are clicked with Shift", () => {
  it("are selected together, and no longer at the second click", async () => {
    const page = await Page.of(new FakeKernel(vectorsOf("conv")));
    const app = new App(page.viewer);
    document.body.append(app.element);
    await page.sends({ type: "open-level" });
    const press = async (node: string, more: EventInit & { shiftKey?: boolean; key?: string } = {}) => {
      const box = app.element.querySelector(`[data-box="${page.boxOf(node)}"] > .fx-shape`)!;
      const type = more.key ? "keydown" : "pointerdown";
      const target = more.key ? app.element.querySelector(".fxi-graph")! : box;
      const init = { bubbles: true, shiftKey: true, button: 0, ...more };
      target.dispatchEvent(more.key ? new KeyboardEvent(type, init) : new MouseEvent(type, init));
      await settled();
    };
    const lit = (): string[] => Object.keys(page.get("lit").boxes).sort();
    const boxes = (...nodes: string[]): string[] => nodes.map((node) => page.boxOf(node)!).sort();
    await page.sends({ type: "select-node", name: "stem_norm", show: true, pane: 0 });
    const outlines = page.layouts.outlines.length;
    await press("stem_conv");
    expect(lit()).toEqual(boxes("stem_norm", "stem_conv"));
    await press("stem_norm", { key: "Enter" });
    expect(lit(), "the selected box is added, or taken out, by the keyboard").toEqual(boxes("stem_conv"));
    expect(app.element.querySelector('[aria-label="Find others"] [role=status]')!.textContent).toContain(
      "1 node selected",
    );
    await press("stem_conv");
    expect(lit()).toEqual([]);
    expect(page.layouts.outlines.length, "nothing is laid out anew where nothing opens").toBe(outlines);
    app.dispose();
    app.element.remove();
  });
});

describe("a frame that is drawn with Shift", () => {
  it("adds the boxes that are whole within it, and takes none out", async () => {
    const page = await Page.of(new FakeKernel(vectorsOf("conv")));
    const app = new App(page.viewer);
    document.body.append(app.element);
    await page.sends({ type: "open-level" });
    const graph = app.element.querySelector<HTMLElement>(".fxi-graph")!;
    const put = (node: string, x: number): void => {
      const shape = app.element.querySelector(`[data-box="${page.boxOf(node)}"] > .fx-shape`)!;
      shape.getBoundingClientRect = () => new DOMRect(x, 10, 20, 10);
    };
    put("stem_conv", 10);
    put("stem_norm", 40);
    const drag = async (to: number): Promise<void> => {
      const init = { bubbles: true, shiftKey: true, button: 0 };
      graph.dispatchEvent(new MouseEvent("pointerdown", { ...init, clientX: 5, clientY: 5 }));
      window.dispatchEvent(new MouseEvent("pointermove", { clientX: to, clientY: 50 }));
      expect(graph.querySelector<HTMLElement>(".fxi-frame")!.style.width).toBe(`${to - 5}px`);
      window.dispatchEvent(new MouseEvent("pointerup"));
      await settled();
    };
    const boxes = (...nodes: string[]): string[] => nodes.map((node) => page.boxOf(node)!).sort();
    await drag(35);
    expect(Object.keys(page.get("lit").boxes)).toEqual(boxes("stem_conv"));
    await drag(65);
    expect(Object.keys(page.get("lit").boxes).sort()).toEqual(boxes("stem_conv", "stem_norm"));
    await drag(65);
    expect(Object.keys(page.get("lit").boxes).sort()).toEqual(boxes("stem_conv", "stem_norm"));
    expect(graph.querySelector(".fxi-frame")).toBeNull();
    app.dispose();
    app.element.remove();
  });
});

describe("nodes that are lit up", () => {
  it("open the groups around them at the stage that has them, and go again", async () => {
    const page = await Page.of(new FakeKernel(vectorsOf("conv"), { on: 1 }));
    await page.sends({ type: "light", stage: 0, compared: "", roles: { stem_norm: "misfit" }, show: true });
    expect(page.error).toBe("");
    expect(page.get("stages").shown).toBe(0);
    expect(page.get("lit").boxes).toEqual({ [page.boxOf("stem_norm")!]: "misfit" });
    await page.sends({ type: "light", stage: null, compared: "", roles: {}, show: true });
    expect(page.get("lit").boxes).toEqual({});
  });
});
