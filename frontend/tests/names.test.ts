import { describe, expect, it } from "vitest";
import { h } from "../src/base/dom";
import { elidedList, elideMiddle, type Ends, shortNames } from "../src/base/names";

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
  const words = (ends: Ends): (string | null)[] => {
    const items = Array.from({ length: 12 }, (_, i) => h("li", String(i)));
    const list = elidedList(items, ends);
    return [...list.children].map(({ textContent }) => textContent);
  };
  const numbers = (from: number, to: number): string[] =>
    Array.from({ length: to - from }, (_, i) => String(from + i));

  it("is left out in the middle, until somebody asks for it", () => {
    expect(words({ first: 3, last: 2 })).toEqual(["0", "1", "2", "… 7 more …", "10", "11"]);
    const list = elidedList(
      [..."abcde"].map((word) => h("li", word)),
      { first: 1, last: 1 },
    );
    list.querySelector("button")!.click();
    expect(list.textContent).toBe("abcde");
  });

  it("is complete where a line would stand for one item", () => {
    expect(words({ first: 9, last: 2 })).toEqual(numbers(0, 12));
    expect(words({ first: 8, last: 2 })).toEqual([...numbers(0, 8), "… 2 more …", "10", "11"]);
  });
});
