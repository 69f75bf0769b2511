import { describe, expect, it } from "vitest";
import { fragmentOf, VIEW_AT_FIRST, viewOf } from "../src/viewer/view_link";
import type { ViewState } from "../src/base/wire";

const VIEWS: [words: string, view: Partial<ViewState>][] = [
  ["a first view", {}],
  ["a stage beside another", { stage: 2, compared: 0, beside: true }],
  ["four stages in a row", { stage: 5, compared: 0, beside: true, between: [2, 3] }],
  ["a stage and the one below", { stage: 1, compared: "below" }],
  ["opened groups with odd names", { opened: ["blocks.0", "a&b=c#d%20", "</script>😀"] }],
  ["no group at all", { opened: [] }],
  ["a query and colours", { query: 'op:call_module "x = y" -name:a+b', overlay: "flops" }],
  ["a node of the other side", { selected: { kind: "node", name: "mul_1", pane: 1 } }],
  ["an arrangement", { direction: "right", shapes: true, lines: "bytes", bookkeeping: true }],
  ["a group", { selected: { kind: "group", name: "encoder.layer.0", pane: 0 } }],
];

describe("a view in an address", () => {
  it.each(VIEWS)("comes back: %s", (_, view) => {
    const whole = { ...VIEW_AT_FIRST, ...view };
    expect(viewOf(`#${fragmentOf(whole)}`)).toEqual(whole);
  });

  it("says nothing of a first view", () => {
    expect(fragmentOf(VIEW_AT_FIRST)).toBe("");
  });

  it.each([
    ["#x=1", '"x=1" is not a field of a view.'],
    ["#section-2", '"section-2=" is not a field of a view.'],
    ["#stage=last", '"stage=last" is not a field of a view.'],
    ["#stage=-1", '"stage=-1" is not a field of a view.'],
    ["#compare=1e3", '"compare=1e3" is not a field of a view.'],
    ["#beside=yes", '"beside=yes" is not a field of a view.'],
    ["#styles=thick", '"styles=thick" is not a field of a view.'],
    ["#node=a&group=b", '"group=b" is not a field of a view.'],
    ["#node=a&pane=left", '"pane=left" is not a field of a view.'],
    ["#pane=1", '"pane=1" is not a field of a view.'],
    ["#between=1,x", '"between=1,x" is not a field of a view.'],
    ["#query=a&query=b", '"query=a" is not a field of a view.'],
    [`#query=${"x".repeat(20_001)}`, "is not a field of a view."],
  ])("that is damaged is refused in words: %s", (fragment, words) => {
    expect(() => viewOf(fragment)).toThrow(words);
  });
});
