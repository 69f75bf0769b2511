import { describe, expect, it } from "vitest";
import { parseQuery, QueryError } from "../src/viewer/search/query";
import { part, reachable, shapeTest, withShortNames } from "../src/viewer/search/search";
import { FIELDS, queryFor } from "../src/base/query_help";

const read = (text: string): [string, string, boolean][] =>
  parseQuery(text).flatMap((terms) =>
    terms.map(({ field, value, negated }): [string, string, boolean] => [field, value, negated]),
  );

describe("a query", () => {
  it.each<[string, [string, string, boolean][]]>([
    ["", []],
    ['""', []],
    [
      "a -b a",
      [
        ["", "a", false],
        ["", "b", true],
      ],
    ],
    ["-", [["", "-", false]]],
    ["OP:call_module", [["op", "call_module", false]]],
    ['-source:"x = y"', [["source", "x = y", true]]],
    ['"two words', [["", "two words", false]]],
    [
      "shape:(2, 12) x",
      [
        ["shape", "(2, 12)", false],
        ["", "x", false],
      ],
    ],
    [
      "aten::add model.py:12",
      [
        ["", "aten::add", false],
        ["", "model.py:12", false],
      ],
    ],
    ["path:a..b", [["path", "a..b", false]]],
  ])("is read as terms: %s", (text, terms) => expect(read(text)).toEqual(terms));

  it.each(["opp:x", "op:", 'by:""', Array.from({ length: 51 }, (_, i) => i).join(" ")])(
    "that cannot be read is refused: %s",
    (text) => {
      expect(() => parseQuery(text)).toThrow(QueryError);
    },
  );

  it("is written so that it is read as it was meant", () => {
    for (const name of ["relu", "two words", "(a)", "a:b", "-x"])
      expect(read(queryFor("inputs", name))).toEqual([["inputs", name, false]]);
  });

  it("may be any example", () => {
    for (const { field, example } of FIELDS) expect(read(example)[0]![0]).toBe(field);
  });
});

describe("a part of a text", () => {
  it("has whole numbers", () => {
    expect(part("layer.1")("encoder.layer.1.output")).toBe(true);
    expect(part("layer.1")("encoder.layer.10.output")).toBe(false);
    expect(part("1")("11 21 1")).toBe(true);
    expect(part("1")("11 21")).toBe(false);
  });
});

describe("sizes", () => {
  it("stand beside each other, or are all in brackets", () => {
    for (const written of ["2x12", "2×12", "2, 12", "2*12"])
      expect(shapeTest(written)("2×12×768")).toBe(true);
    expect(shapeTest("2x768")("2×12×768")).toBe(false);
    expect(shapeTest("(2, 12)")("2×12×768")).toBe(false);
    expect(shapeTest("(2, 12)")("2×12")).toBe(true);
    expect(shapeTest("()")("")).toBe(true);
  });
});

describe("what can be reached", () => {
  it("is found once, in cycles too", () => {
    expect([...reachable([[1], [2, 3], [], [1]], 0)].sort()).toEqual([1, 2, 3]);
    expect([...reachable([[1], [0]], 0)].sort()).toEqual([0, 1]);
  });
});

describe("the name of a function of torch.nn.functional", () => {
  it.each(["torch.nn.functional.gelu", "nn.functional.gelu", "functional.gelu", "torch._c._nn.gelu"])(
    "is understood as %s",
    (text) => expect(withShortNames(text)).toBe("f.gelu"),
  );

  it("is no part of another name", () =>
    expect(withShortNames("my_functional.gelu")).toBe("my_functional.gelu"));
});
