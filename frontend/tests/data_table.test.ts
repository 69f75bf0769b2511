import { describe, expect, it, vi } from "vitest";
import { DataTable } from "../src/tables/data_table";
import type { Cell, Table } from "../src/base/wire";

const TABLE: Table = {
  columns: [
    { name: "node", title: "Node", kind: "text" },
    { name: "op", title: "Op", kind: "text" },
    { name: "error", title: "Error", kind: "error" },
  ],
  rows: [
    ["b", "call_module", 0.5],
    ["a", "call_function", 2],
    ["d", "call_module", null],
    ["c", "call_function", 0.1],
  ],
  total: 4,
};

const jump = vi.fn();

function shown(table: Table = TABLE): DataTable {
  const made = new DataTable(jump);
  document.body.replaceChildren(made.element);
  made.show(table);
  return made;
}

const names = ({ element }: DataTable): string =>
  [...element.querySelectorAll("tbody th")].map((cell) => cell.textContent).join("");
const header = ({ element }: DataTable, i: number): HTMLElement =>
  element.querySelectorAll<HTMLElement>("thead th")[i]!;
const click = (table: DataTable, i: number, shiftKey = false): boolean =>
  header(table, i)
    .querySelector("button")!
    .dispatchEvent(new MouseEvent("click", { shiftKey, bubbles: true }));
const numbered = (count: number): Table => ({
  ...TABLE,
  rows: Array.from({ length: count }, (_, i): Cell[] => [`n${i}`, i % 2 ? "odd" : "even", i]),
  total: count,
});

describe("a table", () => {
  it("is shown as it comes, and sorted up, down and not at all by clicks on a column", () => {
    const table = shown();
    const orders = [names(table)];
    for (let i = 0; i < 3; i++) {
      click(table, 0);
      orders.push(`${header(table, 0).getAttribute("aria-sort")} ${names(table)}`);
    }
    expect(orders).toEqual(["badc", "ascending abcd", "descending dcba", "none badc"]);
    expect(TABLE.rows[0]![0]).toBe("b");
  });

  it("is sorted by a second column where the first is equal", () => {
    const table = shown();
    click(table, 1);
    click(table, 0, true);
    expect(names(table)).toBe("acbd");
    expect([0, 1].map((i) => header(table, i).querySelector("sup")!.textContent)).toEqual(["2", "1"]);
    click(table, 2);
    expect(header(table, 1).getAttribute("aria-sort")).toBe("none");
    expect(table.element.querySelector("sup")).toBeNull();
  });

  it("sorts numbers by their size", () => {
    const table = shown();
    click(table, 2);
    expect(names(table).replace("d", "")).toBe("cba");
  });

  it("keeps its order when it is shown anew, and forgets it with other columns", () => {
    const table = shown();
    click(table, 0);
    table.show({
      ...TABLE,
      rows: [
        ["z", "x", 1],
        ["y", "x", 1],
      ],
      total: 2,
    });
    expect(names(table)).toBe("yz");
    table.show({ ...TABLE, columns: [...TABLE.columns].reverse() });
    expect(header(table, 0).getAttribute("aria-sort")).toBe("none");
  });

  it("keeps the rows with all words, whatever columns they are in, and copies what it shows", () => {
    vi.useFakeTimers();
    const table = shown(numbered(20));
    const filter = table.element.querySelector("input")!;
    filter.value = "ODD n1";
    filter.dispatchEvent(new Event("input"));
    vi.runAllTimers();
    expect(names(table)).toBe("n1n11n13n15n17n19");
    expect(table.element.querySelector("[role=status]")!.textContent).toBe("6 of 20 rows");
    click(table, 2);
    click(table, 2);
    expect(
      table
        .toTsv()
        .split("\n")
        .map((line) => line.split("\t")[0]),
    ).toEqual(["Node", "n19", "n17", "n15", "n13", "n11", "n1"]);
    filter.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    expect(table.element.querySelectorAll("tbody tr")).toHaveLength(20);
    vi.useRealTimers();
  });

  it("shows the first of many rows, and all when asked", () => {
    const table = shown(numbered(1000));
    expect(table.element.querySelectorAll("tbody tr")).toHaveLength(200);
    table.element.querySelector<HTMLElement>(".fxi-more button")!.click();
    expect(table.element.querySelectorAll("tbody tr")).toHaveLength(1000);
  });

  it("jumps to the node of a row", () => {
    const table = shown();
    table.element.querySelector<HTMLElement>("tbody th button")!.click();
    expect(jump.mock.calls.at(-1)![0]).toBe("b");
  });

  it("marks the row of the node that is selected, whatever the order", () => {
    const table = shown();
    const marked = (): (string | undefined)[] =>
      [...table.element.querySelectorAll<HTMLElement>("[aria-current=true]")].map(
        (row) => row.dataset["name"],
      );
    table.setSelected("c");
    expect(marked()).toEqual(["c"]);
    click(table, 0);
    expect(marked()).toEqual(["c"]);
    table.setSelected("elsewhere");
    expect(marked()).toEqual([]);
    table.setSelected(null);
    expect(marked()).toEqual([]);
  });

  it("scrolls as far as the selected row is out of sight", () => {
    const table = shown(numbered(2));
    const box = vi.spyOn(HTMLElement.prototype, "getBoundingClientRect");
    box.mockImplementation(function (this: HTMLElement) {
      return new DOMRect(0, this.dataset["name"] ? 90 : 0, 9, this.matches("tr, thead") ? 30 : 100);
    });
    const scroll = table.element.querySelector(".fxi-table-scroll")!;
    table.setSelected("n1");
    expect(scroll.scrollTop).toBe(20);
    box.mockRestore();
  });
});
