import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { GraphView, type GraphActions } from "../src/graph/graph_view";
import type { NodesFound, SearchAnswer } from "../src/base/protocol";
import { FIELDS } from "../src/base/query_help";
import { SearchBox } from "../src/panels/search_box";
import { column } from "./pictures";
import { FilterBar } from "../src/panels/bars";

const RELU = { kind: "node" as const, name: "relu", text: "<b>torch.relu</b>" };
const FOUND: SearchAnswer = { results: [RELU], total: 70, nodes: 69, message: "" };

describe("the search field", () => {
  const actions = { search: vi.fn(), choose: vi.fn(), lightUp: vi.fn(), leave: vi.fn() };
  let box: SearchBox;
  let input: HTMLInputElement;
  const options = (): HTMLElement[] => [...box.element.querySelectorAll<HTMLElement>("[role=option]")];
  const press = (key: string, shiftKey = false): boolean =>
    input.dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
  const type = (text: string): void => {
    input.value = text;
    input.dispatchEvent(new Event("input"));
  };

  beforeEach(() => {
    vi.useFakeTimers();
    for (const action of Object.values(actions)) action.mockClear();
    box = new SearchBox(actions);
    input = box.element.querySelector("input")!;
    document.body.replaceChildren(box.element);
    input.focus();
  });
  afterEach(() => vi.useRealTimers());

  it("says what can be asked for while it is empty", () => {
    expect(options().map((option) => option.querySelector("code")!.textContent)).toEqual(
      FIELDS.map(({ example }) => example),
    );
    expect(input.getAttribute("aria-expanded")).toBe("true");
    expect(input.hasAttribute("aria-activedescendant")).toBe(false);
    press("ArrowDown");
    expect(input.getAttribute("aria-activedescendant")).toBe(options()[0]!.id);
    press("Enter");
    expect(input.value).toBe("name:");
  });

  it("shows what is found, as words, and offers to light all of it up", () => {
    type("relu");
    vi.runAllTimers();
    expect(actions.search).toHaveBeenCalledWith("relu");
    box.show(FOUND);
    expect(box.element.querySelector("b")).toBeNull();
    expect(options().at(-1)!.textContent).toContain("Show all 69 in the graph");
    expect(box.element.textContent).toContain("The first 1 of 70");
    press("Enter", true);
    expect(actions.lightUp).toHaveBeenCalledWith("relu");
    expect(actions.choose).not.toHaveBeenCalled();
  });

  it("lights up by the last row as well", () => {
    type("relu");
    vi.runAllTimers();
    box.show(FOUND);
    press("ArrowUp");
    press("Enter");
    expect(actions.lightUp).toHaveBeenCalledWith("relu");
  });

  it.each([
    [true, "lightUp"],
    [false, "choose"],
  ] as const)("waits for the answer if somebody is faster (shift: %s)", (shift, action) => {
    type("relu");
    press("Enter", shift);
    expect(actions.search, "at once").toHaveBeenCalledWith("relu");
    expect(actions[action]).not.toHaveBeenCalled();
    box.show(FOUND);
    expect(actions[action]).toHaveBeenCalledOnce();
  });

  it("says why a query has no answer", () => {
    type("inputs:<i>x</i>");
    vi.runAllTimers();
    box.show({ results: [], total: 0, nodes: 0, message: 'There is no node "<i>x</i>".' });
    expect(box.element.querySelector("[role=status]")!.textContent).toBe('There is no node "<i>x</i>".');
    expect(options()).toEqual([]);
    expect(input.getAttribute("aria-expanded")).toBe("false");
    press("Enter", true);
    expect(actions.lightUp).not.toHaveBeenCalled();
  });
});

describe("the bar above a graph in which nodes are lit up", () => {
  const found: NodesFound = { query: "op:<b>", count: 17, message: "", boxes: [{}] };

  it("says what is looked for, and can be left", () => {
    const end = vi.fn();
    const bar = new FilterBar(end);
    expect(bar.element.hidden).toBe(true);
    bar.show(found);
    expect(bar.element.querySelector("[role=status]")!.textContent).toBe("17 nodes match op:<b>");
    bar.show({ ...found, count: 1 });
    expect(bar.element.textContent).toBe("1 node matches op:<b>");
    bar.show({ ...found, boxes: [{}, { a: 2, b: 3 }] });
    expect(bar.element.textContent).toBe("17 nodes match op:<b>, 5 in the other graph");
    bar.show({ ...found, message: "Why." });
    expect(bar.element.textContent).toBe("op:<b>: Why.");
    bar.element.querySelector("button")!.click();
    expect(end).toHaveBeenCalledOnce();
    bar.show(null);
    expect(bar.element.hidden).toBe(true);
  });
});

describe("a graph in which nodes are lit up", () => {
  it("tells them from others, and counts them in closed groups", () => {
    const graph = new GraphView({} as GraphActions);
    const picture = column(["x", "block", "relu", "out"], {
      block: { kind: "group", openable: true, node: null, count: 9 },
    });
    const lit = (selector: string): number => graph.element.querySelectorAll(selector).length;
    graph.show(picture);
    graph.highlights.setFound({ block: 3, relu: 1 });
    expect(graph.element.classList.contains("fxi-has-found")).toBe(true);
    expect([lit(".node.fxi-found"), lit(".edge.fxi-found"), lit(".fxi-found-count")]).toEqual([2, 1, 1]);
    expect(graph.element.querySelector(".fxi-found-count")!.textContent).toBe("3");
    graph.show(picture);
    expect(lit(".fxi-found-count"), "in the next picture too").toBe(1);
    graph.highlights.setFound({});
    expect([lit(".fxi-found"), lit(".fxi-found-count")]).toEqual([0, 0]);
    expect(graph.element.classList.contains("fxi-has-found"), "nothing is dimmed for nothing").toBe(false);
    graph.dispose();
  });
});
