/** The results of a search: their order, and how many there are. */

import { describe, expect, it } from "vitest";
import type { Facts } from "../src/viewer/graphs/data";
import { Search } from "../src/viewer/search/search";

const node = (name: string, target: string): Facts => ({
  ...{ name, op: "call_method", target, module: "", owner: "", classes: "" },
  ...{ values: [], frames: [], inputs: [], marks: [], parameters: 0, args: "" },
});

const searchIn = (nodes: Facts[], errors: (number | null)[] | null = null): Search =>
  new Search({
    hierarchy: { groups: new Map(), nodes, isComplete: true },
    ...{ frames: [], passes: () => [], errors: () => errors },
  });

describe("results", () => {
  it("are groups too, whose nodes are counted", () => {
    const groups = new Map([["a", { data: { path: "a", name: "a", className: "Block", count: 1 } }]]);
    const search = new Search({
      ...{ hierarchy: { groups, nodes: [], isComplete: true } as never },
      ...{ frames: [], passes: () => [], errors: () => null },
    });
    expect(search.find("a").results).toEqual([{ kind: "group", name: "a", text: "Block · 1 node" }]);
  });

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

  it("are the nodes that are given an argument of a name", () => {
    const search = searchIn(
      ["input attn_mask", "input mask2", "input"].map((args, i) => ({ ...node(`n${i}`, "f"), args })),
    );
    expect(search.names("arg:attn_mask")).toEqual(["n0"]);
    expect(search.names("arg:MASK")).toEqual(["n0", "n1"]);
  });

  it("are those of any alternative, and of numbers that are as large as asked for", () => {
    const sized = (name: string, shape: string, parameters: number): Facts => ({
      ...{ ...node(name, name), parameters },
      values: [{ shape, dtype: "torch.float32" }],
    });
    const search = searchIn([sized("a", "(2, 12)", 1e6), sized("b", "(30)", 2e6), sized("c", "()", 0)]);
    const found: Record<string, string> = {
      "name:a OR name:c": "ac",
      "name:a name:c": "",
      "name:a OR name:b params:>1e6": "ab",
      "params:>1e6": "b",
      "params:>=1000000": "ab",
      "params:<1": "c",
      "params:0": "c",
      "elements:24": "a",
      "elements:>24 -name:c": "b",
      'name:a OR "x OR y"': "a",
      "elements:1": "c",
    };
    for (const [query, names] of Object.entries(found))
      expect(search.names(query).join(""), query).toBe(names);
    expect(search.find("params:many").message).toBe("params: needs a number, such as params:>1e6");
  });

  it("fit a regular expression between slashes, in capitals or not", () => {
    const names = ["layer_1_query", "layer_12_query", "layer_1_key", "query"];
    const search = searchIn(names.map((name) => node(name, "torch.nn.Linear")));
    const found: Record<string, string[]> = {
      "name:/layer_\\d_/": ["layer_1_query", "layer_1_key"],
      "name:/^query$/ OR name:/_KEY$/": ["layer_1_key", "query"],
      "/^layer_\\d\\d_/": ["layer_12_query"],
      'name:"/1_(query|key)/" -/key/': ["layer_1_query"],
      "target:/^torch\\.nn\\.L/ name:/\\D12\\D/": ["layer_12_query"],
      "name:/layer": [],
    };
    for (const [query, expected] of Object.entries(found))
      expect(search.names(query), query).toEqual(expected);
    expect(search.find("name:/(/").message).toBe('"/(/" is no regular expression.');
  });

  it("are nodes whose output error is as large as asked for, once that is known", () => {
    const nodes = ["a", "b", "c"].map((name) => node(name, "relu"));
    const search = searchIn(nodes, [2e-3, 1e-5, null]);
    expect(search.names("error:>1e-3")).toEqual(["a"]);
    expect(search.names("error:<=1E-5")).toEqual(["b"]);
    expect(searchIn(nodes).find("error:>1e-3").message).toBe(
      "error: is known once the graph is coloured by the output error.",
    );
  });

  it("that are none come with the terms that find nothing by themselves", () => {
    const search = searchIn([node("a", "relu"), node("b", "tanh")]);
    expect(search.find("relu name:x").message).toBe('No node matches "name:x".');
    expect(search.find("relu tanh").message, "each finds some").toBe("");
    expect(search.find("x").message, "plain to see").toBe("");
  });

  it("are no more than can be read, and all are counted", () => {
    const search = searchIn(Array.from({ length: 100 }, (_, i) => node(`relu_${i}`, "relu")));
    const { results, total, nodes } = search.find("relu");
    expect([results.length, total, nodes]).toEqual([60, 100, 100]);
  });

  it("are the neighbours of a node, or all before and after it", () => {
    const chain = ["a", "b", "c"].map((name, i, all) => ({
      ...node(name, name),
      inputs: all.slice(i - 1, i),
    }));
    chain[0]!.inputs = [];
    const search = searchIn(chain);
    const found = { "users:a": "b", "downstream:a": "bc", "inputs:c": "b", "upstream:c": "ab" };
    for (const [query, names] of Object.entries(found))
      expect(search.names(query).join(""), query).toBe(names);
  });

  it.each([
    ["masc", "mask"],
    ["maskk", "mask"],
    ["mxsk", "mask"],
    ["msak", ""],
    ["mask", ""],
    ["name:masc", ""],
  ])("of %s propose %j", (query, suggestion) => {
    expect(searchIn([node("attention_mask", "to")]).find(query).suggestion).toBe(suggestion);
  });
});
