import { describe, expect, it } from "vitest";
import type { Facts } from "../src/viewer/graphs/data";
import { Counterparts } from "../src/viewer/graphs/graphs";

const scene = (...names: string[]): { nodes: Map<string, Facts> } => ({
  nodes: new Map(names.map((name) => [name, {} as Facts])),
});

describe("what stands for a node in another stage of a report", () => {
  // The merged linear stands for key and query; the query that is left, which splits it, for the query alone.
  const stages = [scene("x", "key", "query", "dropout"), scene("x", "merged", "query", "new")];
  const counterparts = new Counterparts(
    [...stages, scene("x", "all", "dropout")],
    [{ 1: [1, 2] }, { 1: [1, 2], 2: [] }],
  );

  it.each([
    [["x"], 1, 0, ["x"]],
    [["merged"], 1, 0, ["key", "query"]],
    [["query", "merged"], 1, 0, ["query", "key"]],
    [["new"], 1, 0, []],
    [["key"], 0, 1, ["merged"]],
    [["query"], 0, 1, ["query", "merged"]],
    [["dropout", "nothing"], 0, 1, []],
    [["key"], 0, 2, ["all"]],
    [["all"], 2, 0, ["key", "query"]],
    [["dropout"], 2, 0, []],
    [["new"], 1, 1, ["new"]],
  ])("%j, from %s to %s", (names, from, to, expected) => {
    expect(counterparts.of(names, from, to)).toEqual(expected);
  });
});
