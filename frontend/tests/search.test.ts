/** The results of a search: their order, and how many there are. */

import { describe, expect, it } from "vitest";
import type { Facts } from "../src/viewer/graphs/data";
import { Search } from "../src/viewer/search/search";

const node = (name: string, target: string): Facts => ({
  ...{ name, op: "call_method", target, module: "", owner: "", classes: "" },
  ...{ values: [], frames: [], inputs: [], marks: [] },
});

const searchIn = (nodes: Facts[]): Search =>
  new Search({ hierarchy: { groups: new Map(), nodes, isComplete: true }, frames: [], passes: () => [] });

describe("results", () => {
  it("whose names begin with the query come before those that contain it, and others last", () => {
    const names = ["my_norm", "other", "norm_of_many_heads", "norm_of_one", "norm"];
    const search = searchIn(names.map((name) => node(name, name === "other" ? "renorm" : "relu")));
    expect(search.find("norm").results.map(({ name }) => name)).toEqual([
      "norm",
      "norm_of_one",
      "norm_of_many_heads",
      "my_norm",
      "other",
    ]);
  });

  it("are no more than can be read, and all are counted", () => {
    const search = searchIn(Array.from({ length: 100 }, (_, i) => node(`relu_${i}`, "relu")));
    const { results, total, nodes } = search.find("relu");
    expect([results.length, total, nodes]).toEqual([60, 100, 100]);
  });
});
