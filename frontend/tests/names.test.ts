import { describe, expect, it } from "vitest";
import { elideMiddle, endsOf, shortNames } from "../src/base/names";

describe("names beside each other", () => {
  it("drop the beginning that all share, up to a separator", () => {
    expect(shortNames(["encoder.layer.0.query", "encoder.layer.1.query", "encoder.layer.10.key"])).toEqual([
      "…0.query",
      "…1.query",
      "…10.key",
    ]);
    expect(shortNames(["encoder_layer_1", "encoder_layer_10"])).toEqual(["…1", "…10"]);
  });

  it("stay as they are where nothing is shared, or too little, or there is one", () => {
    for (const names of [["encoder.query", "decoder.query"], ["a.query", "a.key"], ["encoder.query"], []])
      expect(shortNames(names)).toEqual(names);
    expect(shortNames(["encoder", "encoder.layer"])).toEqual(["encoder", "encoder.layer"]);
    expect(shortNames(["encoder.layer", "encoder.layer"])).toEqual(["…layer", "…layer"]);
  });

  it("keep both ends when they are long", () => {
    const [name] = shortNames([`first.${"middle.".repeat(20)}last`], 20);
    expect(name).toBe("first.mid…iddle.last");
    expect([...name!].length).toBe(20);
  });

  it("tear no character apart", () => {
    expect(elideMiddle("🙂🙂🙂🙂🙂", 3)).toBe("🙂…🙂");
  });
});

describe("a long list", () => {
  const items = Array.from({ length: 12 }, (_, i) => i);

  it("is left out in the middle", () => {
    expect(endsOf(items, { first: 3, last: 2 })).toEqual({
      head: [0, 1, 2],
      hidden: [3, 4, 5, 6, 7, 8, 9],
      tail: [10, 11],
    });
  });

  it("is complete where a line would stand for one item", () => {
    expect(endsOf(items, { first: 9, last: 2 })).toEqual({ head: items, hidden: [], tail: [] });
    expect(endsOf(items, { first: 8, last: 2 }).hidden).toEqual([8, 9]);
  });
});
