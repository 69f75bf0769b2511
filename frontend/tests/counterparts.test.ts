import { describe, expect, it } from "vitest";
import { Counterparts } from "../src/viewer/graphs/counterparts";
import type { Facts } from "../src/viewer/graphs/data";

const scene = (...names: string[]): { nodes: Map<string, Facts> } => ({
  nodes: new Map(names.map((name) => [name, {} as Facts])),
});

describe("what stands for a node in another stage of a report", () => {
  // The merged linear stands for key and query; the query that is left, which splits it, for the query alone.
  const counterparts = new Counterparts(
    scene("x", "key", "query", "dropout"),
    scene("x", "merged", "query", "new"),
    { 1: [1, 2] },
  );

  it.each([
    [["x"], false, ["x"]],
    [["merged"], false, ["key", "query"]],
    [["query", "merged"], false, ["query", "key"]],
    [["new"], false, []],
    [["key"], true, ["merged"]],
    [["query"], true, ["query", "merged"]],
    [["dropout", "nothing"], true, []],
  ])("%j, before: %s", (names, before, expected) => {
    expect(counterparts.of(names, before)).toEqual(expected);
  });
});
