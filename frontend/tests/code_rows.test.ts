import { describe, expect, it } from "vitest";
import type { Code } from "../src/base/protocol";
import { folded, MOST_AT_ONCE, rowsOf, textOf, unfolded, wordsOf } from "../src/code/code_rows";
import type { CodeChange } from "../src/base/wire";

function code(before: string[] | null, after: string[], runs: [CodeChange, number][] = []): Code {
  const lines = (texts: string[]): Code["after"] => texts.map((text) => ({ text, nodes: [text] }));
  return {
    ...{ state: "ready", text: "", runs, isLinked: true },
    after: lines(after),
    before: before && lines(before),
  };
}

const COMPARED = code(
  ["a", "b = 1", "c", "d"],
  ["a", "b = 2", "d", "e"],
  [
    ["same", 1],
    ["changed", 1],
    ["removed", 1],
    ["same", 1],
    ["added", 1],
  ],
);

function many(count: number): Code {
  const lines = Array.from({ length: count }, (_, i) => `n${i}`);
  return code(lines, lines, [["same", count]]);
}

describe("rows of code", () => {
  it("are one for each line of a stage", () => {
    expect(rowsOf(code(null, ["a", "b"]), false).map(({ after }) => after)).toEqual([0, 1]);
  });

  it("have what has changed side by side, or one below the other", () => {
    const places = (unified: boolean): unknown[] =>
      rowsOf(COMPARED, unified).map(({ kind, before, after }) => [kind, before, after]);
    expect(places(false)).toEqual([
      ["same", 0, 0],
      ["changed", 1, 1],
      ["removed", 2, null],
      ["same", 3, 2],
      ["added", null, 3],
    ]);
    expect(places(true)).toEqual([
      ["same", 0, 0],
      ["removed", 1, null],
      ["added", null, 1],
      ["removed", 2, null],
      ["same", 3, 2],
      ["added", null, 3],
    ]);
  });

  it("are copied as a unified difference, and a stage as its code", () => {
    expect(textOf(COMPARED)).toBe(" a\n-b = 1\n+b = 2\n-c\n d\n+e");
    expect(textOf(code(null, ["a", "b"]))).toBe("a\nb");
  });
});

describe("folds", () => {
  it("hide long equal stretches, and keep lines around a change", () => {
    const rows = rowsOf(
      code(
        [...Array.from({ length: 20 }, (_, i) => `n${i}`), "x"],
        [...Array.from({ length: 20 }, (_, i) => `n${i}`), "y"],
        [
          ["same", 20],
          ["changed", 1],
        ],
      ),
      false,
    );
    expect(folded(rows, true)).toEqual([
      { start: 0, stop: 17, isOpen: false },
      { start: 17, stop: 21, isOpen: true },
    ]);
    expect(folded(rows, false)).toEqual([{ start: 0, stop: 21, isOpen: true }]);
  });

  it("leave short stretches as they are", () => {
    expect(folded(rowsOf(COMPARED, false), true)).toEqual([{ start: 0, stop: 5, isOpen: true }]);
    expect(folded(rowsOf(many(4), false), true)).toEqual([{ start: 0, stop: 4, isOpen: false }]);
  });

  it("hide what is too much for one screen", () => {
    const rows = rowsOf(many(MOST_AT_ONCE + 10), false);
    expect(folded(rows, false)).toEqual([
      { start: 0, stop: MOST_AT_ONCE, isOpen: true },
      { start: MOST_AT_ONCE, stop: MOST_AT_ONCE + 10, isOpen: false },
    ]);
  });

  it("cover every row once, whatever is unfolded", () => {
    const fold = { start: 10, stop: 20, isOpen: false };
    expect(unfolded(fold, 0, 100)).toEqual([{ start: 10, stop: 20, isOpen: true }]);
    expect(unfolded(fold, 12, 15)).toEqual([
      { start: 10, stop: 12, isOpen: false },
      { start: 12, stop: 15, isOpen: true },
      { start: 15, stop: 20, isOpen: false },
    ]);
  });
});

describe("words that differ", () => {
  const marked = (parts: { text: string; differs: boolean }[]): string =>
    parts.map(({ text, differs }) => (differs ? `[${text}]` : text)).join("");

  it("are those that only one of the lines has", () => {
    const [before, after] = wordsOf("relu = f(x, 1);  x = None", "relu = g(x, 2);  x = None");
    expect([marked(before), marked(after)]).toEqual([
      "relu = [f](x, [1]);  x = None",
      "relu = [g](x, [2]);  x = None",
    ]);
  });

  it("make up the whole lines again", () => {
    const [a, b] = ["linear = self.a.b(x)", "linear_1 = self.b(x, y);  y = None"];
    const [before, after] = wordsOf(a, b);
    expect([before, after].map((parts) => parts.map(({ text }) => text).join(""))).toEqual([a, b]);
  });

  it("take no time in lines of thousands of words", () => {
    const long = (word: string): string => Array.from({ length: 20_000 }, (_, i) => `${word}${i}`).join(" ");
    const start = performance.now();
    const [before] = wordsOf(`x ${long("a")} y`, `x ${long("b")} y`);
    expect(performance.now() - start).toBeLessThan(1_000);
    expect(before.filter(({ differs }) => differs)).toHaveLength(1);
  });
});
