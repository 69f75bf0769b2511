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
    ["#x=1", 'Unknown field "x".'],
    ["#section-2", 'Unknown field "section-2".'],
    ["#stage=last", 'The field "stage" must be the number of a stage.'],
    ["#stage=-1", 'The field "stage" must be the number of a stage.'],
    ["#compare=1e3", 'The field "compare" must be the number of a stage.'],
    ["#beside=yes", 'The field "beside" must be "1".'],
    ["#styles=thick", 'The field "styles" must be "dtype" or "bytes".'],
    ["#node=a&group=b", "A view selects a node or a group, and not both."],
    ["#node=a&pane=left", 'The field "pane" must be the number of a pane.'],
    ["#between=1,x", 'The field "between" must be the number of a stage.'],
    ["#query=a&query=b", 'The field "query" occurs more than once.'],
    [`#query=${"x".repeat(20_001)}`, 'The field "query" is too long.'],
  ])("that is damaged is refused in words: %s", (fragment, words) => {
    expect(() => viewOf(fragment)).toThrow(words);
  });
});
