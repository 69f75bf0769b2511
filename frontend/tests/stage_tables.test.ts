import { beforeEach, describe, expect, it, vi } from "vitest";
import { DataTable } from "../src/tables/data_table";
import type { Table } from "../src/base/wire";

const NODES: Table = {
  columns: [
    { name: "index", title: "Node", kind: "text" },
    { name: "0. Original", title: "0. Original", kind: "stage" },
    { name: "1. Merge", title: "1. Merge", kind: "stage" },
    { name: "2. Fuse", title: "2. Fuse", kind: "stage" },
  ],
  rows: [
    ["query", ["·"], ["≠ op →", "merged", "slice"], ["≠ op →", "merged", "slice"]],
    ["merged", [""], ["+"], ["·"]],
    ["norm", ["·"], ["·"], ["→", "conv"]],
  ],
  total: 3,
  leads: "nodes",
  stages: { query: 0, merged: 1, norm: 0 },
};
const jump = vi.fn();
let table: DataTable;
const cells = (): HTMLElement[][] =>
  [...table.element.querySelectorAll("tbody tr")].map((row) => [
    ...row.querySelectorAll<HTMLElement>("th, td"),
  ]);

beforeEach(() => {
  jump.mockClear();
  table = new DataTable(jump);
  table.show(NODES);
});

describe("a table of what nodes are at stages", () => {
  it("says it in words and names", () => {
    expect(cells().map((row) => row.map((cell) => cell.textContent))).toEqual([
      ["query", "·", "≠ op → merged, slice", "≠ op → merged, slice"],
      ["merged", "", "+", "·"],
      ["norm", "·", "·", "→ conv"],
    ]);
    expect(table.toTsv().split("\n")[1]).toBe("query\t·\t≠ op → merged, slice\t≠ op → merged, slice");
  });

  it("leads from a name in a column to that stage, and nowhere else", () => {
    cells()[0]![3]!.querySelectorAll("button")[1]!.click();
    expect(jump.mock.calls).toEqual([["slice", 2]]);
  });

  it("leads from a row to the first stage that has the node, in whichever order the rows are", () => {
    table.element.querySelector<HTMLElement>("thead button")!.click();
    expect(cells().map(([name]) => name!.textContent)).toEqual(["merged", "norm", "query"]);
    cells()[0]![0]!.querySelector("button")!.click();
    cells()[1]![2]!.click();
    expect(jump.mock.calls).toEqual([
      ["merged", 1],
      ["norm", 0],
    ]);
  });

  it("puts less weight on what is as at the stage before", () => {
    const muted = cells().map((row) => row.map((cell) => cell.classList.contains("fxi-cell-as-before")));
    expect(muted).toEqual([
      [false, false, false, true],
      [false, false, false, false],
      [false, false, true, false],
    ]);
  });
});

describe("a table of stages", () => {
  it("says nothing of what was not compared", () => {
    table.show({
      columns: [
        { name: "index", title: "Stage", kind: "text" },
        { name: "allclose", title: "Agrees", kind: "bool" },
      ],
      rows: [
        ["0. Original", true],
        ["1. Merge", null],
      ],
      total: 2,
      leads: "stages",
      stages: { "0. Original": 0, "1. Merge": 1 },
    });
    expect(cells().map((row) => row[1]!.textContent)).toEqual(["yes", ""]);
    expect(cells()[1]![1]!.querySelector("svg")).toBeNull();
    cells()[1]![0]!.querySelector("button")!.click();
    expect(jump.mock.calls).toEqual([["1. Merge", 1]]);
  });
});
