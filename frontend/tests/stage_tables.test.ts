import { beforeEach, describe, expect, it, vi } from "vitest";
import { DataTable } from "../src/tables/data_table";

const jump = vi.fn();
let table: DataTable;
const cells = (): HTMLElement[][] =>
  [...table.element.querySelectorAll("tbody tr")].map((row) => [
    ...row.querySelectorAll<HTMLElement>("th, td"),
  ]);

beforeEach(() => {
  jump.mockClear();
  table = new DataTable(jump);
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
