import { beforeEach, describe, expect, it, vi } from "vitest";
import { PassList, type PassActions } from "../src/panels/passes/pass_list";
import { GraphView, type GraphActions } from "../src/graph/graph_view";
import { pass } from "./passes";
import { column } from "./pictures";
import type { Pass } from "../src/base/wire";
import { PreviewBar } from "../src/panels/bars";

const MERGE = { signature: "s1", name: "Merge <b>linears</b>", text: "2 rewrites: 6 linears become 2" };

describe("the banner of a preview", () => {
  const actions = { apply: vi.fn(), cancel: vi.fn() };
  const bar = new PreviewBar(actions);
  const button = (label: string): HTMLButtonElement =>
    [...bar.element.querySelectorAll("button")].find((e) => e.textContent === label)!;

  beforeEach(() => {
    actions.apply.mockClear();
    actions.cancel.mockClear();
    bar.setBusy(false);
    bar.show(MERGE);
  });

  it("says what would be done, as words", () => {
    expect(bar.element.hidden).toBe(false);
    expect(bar.element.querySelector("[role=status]")!.textContent).toBe(
      "Preview of Merge <b>linears</b>: 2 rewrites: 6 linears become 2, nothing is applied",
    );
    bar.show(null);
    expect(bar.element.hidden).toBe(true);
    expect(bar.preview).toBeNull();
  });

  it("applies and cancels", () => {
    button("Apply").click();
    expect(actions.apply).toHaveBeenCalledWith("s1");
    button("Cancel").click();
    expect(actions.cancel).toHaveBeenCalledOnce();
  });

  it("keeps the focus and does nothing while the kernel is busy", () => {
    document.body.append(bar.element);
    button("Apply").focus();
    bar.setBusy(true);
    button("Apply").click();
    expect(actions.apply).not.toHaveBeenCalled();
    expect(document.activeElement).toBe(button("Apply"));
    expect(button("Apply").getAttribute("aria-disabled")).toBe("true");
  });
});

describe("the button on a card", () => {
  const actions = Object.fromEntries(["send", "choose", "limit", "jump"].map((name) => [name, vi.fn()]));
  const list = new PassList(actions as unknown as PassActions);
  document.body.append(list.element);
  const buttons = (): HTMLButtonElement[] => [
    ...list.element.querySelectorAll<HTMLButtonElement>(".fxi-preview-button"),
  ];
  const show = (passes: Pass[], fixed = false): void =>
    list.show({ passes, canUndo: false, canRedo: false, fixed });

  it("is on passes that are off and may change something", () => {
    show([pass("a"), pass("b", { on: true }), pass("c", { matched: 0 }), pass("d", { matched: null })]);
    expect(buttons().map((e) => e.getAttribute("aria-label"))).toEqual(["Preview Pass a", "Preview Pass d"]);
    show([pass("a")], true);
    expect(buttons(), "a report has no kernel").toEqual([]);
  });

  it("starts and ends a preview", () => {
    show([pass("a")]);
    buttons()[0]!.click();
    expect(actions["send"]).toHaveBeenLastCalledWith({ type: "preview", signature: "a" });
    list.setPreviewed("a");
    expect(buttons()[0]!.getAttribute("aria-pressed")).toBe("true");
    buttons()[0]!.click();
    expect(actions["send"]).toHaveBeenLastCalledWith({ type: "end-preview" });
    expect(actions["choose"]).not.toHaveBeenCalled();
  });

  it("has the focus again once the kernel is done", () => {
    show([pass("a"), pass("b")]);
    buttons()[1]!.focus();
    list.setBusy(true);
    list.setBusy(false);
    expect(document.activeElement).toBe(buttons()[1]);
  });
});

describe("the graph of a preview", () => {
  it("is ghosted where something would be new or gone", () => {
    const actions = Object.fromEntries(
      ["select", "clear", "open", "close", "jump", "search", "cross"].map((name) => [name, vi.fn()]),
    );
    const graph = new GraphView(actions as unknown as GraphActions);
    const ghosts = (): number => graph.element.querySelectorAll(".edge.fxi-ghost").length;
    const marked = { merged: { marks: [0] }, relu: { marks: [3] } };
    graph.show({ ...column(["x", "merged", "relu", "out"], marked), preview: true });
    expect(graph.element.classList.contains("fxi-previewing")).toBe(true);
    expect(ghosts()).toBe(2);
    graph.show(column(["x", "merged", "relu", "out"], marked));
    expect(graph.element.classList.contains("fxi-previewing")).toBe(false);
    expect(ghosts()).toBe(0);
    graph.dispose();
  });
});
