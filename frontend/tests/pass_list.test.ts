import { beforeEach, describe, expect, it, vi } from "vitest";
import { PassList, type PassActions } from "../src/panels/passes/pass_list";
import { pass } from "./passes";
import type { Pass } from "../src/base/wire";

const actions = Object.fromEntries(
  ["send", "choose", "limit", "jump", "list"].map((name) => [name, vi.fn()]),
);
const send = actions["send"]!;
let list: PassList;
const find = (selector: string): HTMLElement[] => [...list.element.querySelectorAll<HTMLElement>(selector)];
const names = (selector = ".fxi-card-name"): (string | null)[] => find(selector).map((e) => e.textContent);
const show = (passes: Pass[], rest = {}): void =>
  list.show({ passes, canUndo: false, canRedo: false, ...rest });
const fold = (): HTMLDetailsElement => find(".fxi-idle-passes")[0] as HTMLDetailsElement;
const heading = (): string => find(".fxi-cards-head")[0]!.textContent!;

beforeEach(() => {
  for (const action of Object.values(actions)) action.mockClear();
  list = new PassList(actions as unknown as PassActions);
  document.body.replaceChildren(list.element);
});

const MIXED = [pass("a", { matched: 0 }), pass("b"), pass("c", { matched: 0 }), pass("d"), pass("e")];

describe("the order of the passes", () => {
  it("has those that can change the model first, and folds the others", () => {
    show(MIXED);
    expect(heading()).toBe("3 can change this model");
    expect(names()).toEqual(["b", "d", "e", "a", "c"].map((name) => `Pass ${name}`));
    expect(fold().open).toBe(false);
    expect(fold().querySelector("summary")!.textContent).toBe("2 find nothing here");
    expect(names(".fxi-idle-passes .fxi-card-name")).toEqual(["Pass a", "Pass c"]);
  });

  it("counts those apart that do not say", () => {
    show([pass("a", { matched: null }), pass("b"), pass("c", { matched: 0 })]);
    expect(heading()).toBe("1 can change this model, 1 may");
    show([pass("c", { matched: 0 })]);
    expect(heading()).toBe("No pass can change this model");
    show([]);
    expect(find(".fxi-cards-head")).toEqual([]);
    expect(list.element.textContent).toContain("This session offers no passes.");
  });

  it("keeps passes that are on in sight", () => {
    show([pass("a", { matched: 0, on: true, stage: 1, changes: "no changes" }), pass("b")]);
    expect(names()).toEqual(["Pass a", "Pass b"]);
    expect(fold()).toBeUndefined();
    expect(list.element.textContent).toContain("No changes");
  });

  it("stays as it is until all have been asked", () => {
    const looking = { isLooking: true, matched: null, candidates: "" };
    show(MIXED.map((one) => ({ ...one, ...looking })));
    expect(heading()).toBe("Looking for candidates: 0 of 5 passes …");
    expect(names()).toHaveLength(5);
    expect(fold()).toBeUndefined();
    expect(find(".fxi-counts")[0]!.textContent).toContain("Looking for candidates …");
    show([MIXED[0]!, ...MIXED.slice(1).map((one) => ({ ...one, ...looking }))]);
    expect(heading()).toBe("Looking for candidates: 1 of 5 passes …");
    expect(names()[0]).toBe("Pass a");
    show(MIXED);
    expect(names()[0]).toBe("Pass b");
    show(MIXED.map((one) => ({ ...one, ...looking })));
    expect(names()[0], "as it was last").toBe("Pass b");
  });

  it("unfolds for a pass that was added and finds nothing", () => {
    show(MIXED);
    show([...MIXED, pass("f", { matched: 0 })]);
    expect(fold().open).toBe(true);
  });
});

describe("moving a pass", () => {
  const tool = (label: string): HTMLElement => find(`[aria-label="${label}"]`)[0]!;
  const press = (name: string, label: string): void => {
    list.setChosen(name);
    tool(label).click();
  };

  it("goes past those of its list, whatever is folded between them", () => {
    show(MIXED);
    press("d", "Apply earlier");
    expect(send).toHaveBeenLastCalledWith({ type: "move", signature: "d", place: 1 });
    press("b", "Apply later");
    expect(send).toHaveBeenLastCalledWith({ type: "move", signature: "b", place: 3 });
    press("c", "Apply earlier");
    const last = { type: "move", signature: "c", place: 1 };
    expect(send, "one that is folded stands among all").toHaveBeenLastCalledWith(last);
  });

  it("ends at the ends of the list", () => {
    show(MIXED);
    press("b", "Apply earlier");
    press("e", "Apply later");
    expect(send).not.toHaveBeenCalled();
    list.setChosen("b");
    const areEnds = ["Apply earlier", "Apply later"].map((label) => tool(label).ariaDisabled);
    expect(areEnds).toEqual(["true", "false"]);
  });
});

describe("a switch", () => {
  it("ends where it was after two fast clicks, whatever arrives between them", () => {
    const press = (): void => find(".fxi-switch")[0]!.click();
    const isOn = (): string => find(".fxi-switch")[0]!.getAttribute("aria-checked")!;
    show([pass("a"), pass("b")]);
    press();
    list.setBusy(true);
    expect((find(".fxi-switch")[1] as HTMLButtonElement).disabled).toBe(true);
    press();
    const toggled = (on: boolean): object => ({ type: "toggle", signature: "a", on });
    expect(send.mock.calls).toEqual([[toggled(true)], [toggled(false)]]);
    show([pass("a", { on: true, stage: 1 }), pass("b")]);
    expect(isOn(), "not there yet").toBe("false");
    show([pass("a"), pass("b")]);
    list.setBusy(false);
    expect(isOn()).toBe("false");
    expect(find(".fxi-pending")).toEqual([]);
  });
});

describe("a card", () => {
  it("has the number of its stage, and none while it is off", () => {
    show([pass("a"), pass("b", { on: true, stage: 1, changes: "1 rewrite: 1 cos removed" })]);
    expect(names(".fxi-number")).toEqual(["–", "1"]);
    show([pass("a"), pass("b", { on: true, stage: 1 })], { fixed: true });
    expect(names(".fxi-number")).toEqual(["–", "1"]);
  });

  it("says in short what the pass has changed, or the candidates it has, and in full when it is opened", () => {
    const reason = { reason: "", kind: "matched" as const, what: "3 linears", count: 3, nodes: ["x"] };
    const on = { on: true, stage: 1, changes: "2 rewrites: 6 linears become 2" };
    show([pass("a", { reasons: [reason] }), pass("b", on)]);
    expect(names(".fxi-counts")).toEqual(["3 linears", "6 linears → 2"]);
    list.setChosen("b");
    expect(names(".fxi-counts")).toEqual(["3 linears", "2 rewrites: 6 linears become 2"]);
  });

  it("lists long names short, without the middle, and goes to each by its own", () => {
    const nodes = Array.from({ length: 36 }, (_, i) => `encoder_layer_${i}_query`);
    const reason = {
      reason: `one with ${nodes[0]}`,
      kind: "matched" as const,
      what: "36 linears",
      count: 36,
      nodes,
    };
    show([pass("a", { reasons: [reason] })]);
    expect(names(".fxi-reason-words")).toEqual([]);
    find(".fxi-reasons > summary")[0]!.click();
    expect(names(".fxi-reason-words")).toEqual(["36 linears: one with …0_query"]);
    const links = (): HTMLElement[] => find(".fxi-reason-node > .fxi-link");
    expect(links()).toHaveLength(8);
    expect(links().at(-1)!.textContent).toBe("…35_query");
    expect(links().at(-1)!.getAttribute("aria-label")).toBe("encoder_layer_35_query");
    links().at(-1)!.click();
    expect(actions["jump"]).toHaveBeenLastCalledWith("encoder_layer_35_query");
    find(".fxi-more")[0]!.click();
    expect(links().map((link) => link.getAttribute("aria-label"))).toEqual(nodes);
    expect(document.activeElement).toBe(links()[6]);
  });
});

it("a report says when it was made, and of what", () => {
  show([pass("a")], { fixed: true, made: ["Made 1970-01-02.", "<b>No kernel.</b>"] });
  expect(find(".fxi-made")[0]!.hidden).toBe(false);
  expect(names(".fxi-made p")).toEqual(["Made 1970-01-02.", "<b>No kernel.</b>"]);
  show([pass("a")]);
  expect(find(".fxi-made")[0]!.hidden).toBe(true);
});
