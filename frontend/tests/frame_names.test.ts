import { describe, expect, it } from "vitest";
import { shifts } from "../src/graph/live_picture";

const outer = { x: 0, y: 0, width: 600, height: 1000 };
const inner = { x: 50, y: 100, width: 400, height: 500 };
const groups = new Map([
  ["outer", outer],
  ["inner", inner],
]);
const seen = (x: number, y: number): Record<string, { x: number; y: number }> =>
  Object.fromEntries(shifts(groups, { x, y, width: 300, height: 300 }, 26));

describe("the name of a group", () => {
  it("stays where it is while it can be seen", () => {
    expect(seen(-10, -10)).toEqual({ outer: { x: 0, y: 0 }, inner: { x: 0, y: 0 } });
  });

  it("goes along with the window, below those of the groups around it", () => {
    const { outer: first, inner: second } = seen(80, 200);
    expect(first).toEqual({ x: 80, y: 200 });
    expect(outer.y + first!.y).toBeLessThan(inner.y + second!.y);
    expect(second!.x).toBe(30);
  });

  it("never leaves its group", () => {
    const { outer: first, inner: second } = seen(5000, 5000);
    expect(first!.x).toBeLessThan(outer.width);
    expect(first!.y).toBeLessThan(outer.height);
    expect(second!.y).toBeLessThan(inner.height);
  });

  it("is not moved to the left of a group that is narrower than a name", () => {
    const narrow = new Map([["a", { x: 0, y: 0, width: 60, height: 20 }]]);
    expect(shifts(narrow, { x: 30, y: 10, width: 9, height: 9 }, 26).get("a")).toEqual({ x: 0, y: 0 });
  });
});
