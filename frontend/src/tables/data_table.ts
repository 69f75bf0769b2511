/**
 * A table that can be sorted, filtered, copied and clicked; TanStack Table keeps its rows in order, and this
 * draws them.
 */

import {
  columnFilteringFeature,
  constructTable,
  createFilteredRowModel,
  createSortedRowModel,
  globalFilteringFeature,
  rowSortingFeature,
  tableFeatures,
  type ColumnDef,
} from "@tanstack/table-core";
import { storeReactivityBindings } from "@tanstack/table-core/store-reactivity-bindings";

import { debounce, fill, h, icon } from "../base/dom";
import { barLength, cellText, cellValue, compareCells, counted, grouped, isNumeric } from "../base/format";
import type { Cell, Table } from "../base/wire";
import { stackedChart } from "./stacked_chart";

const FIRST_ROWS = 200;
/** Shorter tables are seen at a glance. */
const ROWS_TO_FILTER = 9;

const features = tableFeatures({
  coreReactivityFeature: storeReactivityBindings(),
  columnFilteringFeature,
  globalFilteringFeature,
  rowSortingFeature,
  filteredRowModel: createFilteredRowModel(),
  sortedRowModel: createSortedRowModel(),
});

type Rows = ReturnType<typeof rowsOf>;

/** Returns the rows of a table, not yet sorted or filtered. */
function rowsOf({ columns, rows }: Table) {
  const defined: ColumnDef<typeof features, Cell[]>[] = columns.map((_, i) => ({
    id: String(i),
    accessorFn: (row) => row[i] ?? null,
    sortFn: (a, b) => compareCells(a.original[i] ?? null, b.original[i] ?? null),
    sortDescFirst: false,
    // One column stands for the whole row, in which the words are looked for.
    enableGlobalFilter: i === 0,
  }));
  return constructTable({
    features,
    columns: defined,
    data: rows,
    getColumnCanGlobalFilter: () => true,
    globalFilterFn: ({ original }, _, words: string[]) => {
      const text = original
        .map((cell) => cellValue(cell))
        .join(" ")
        .toLowerCase();
      return words.every((word) => text.includes(word));
    },
  });
}

export class DataTable {
  readonly element: HTMLElement;
  private readonly scroll = h("div.fxi-table-scroll.fxi-grow.fxi-scroll", {
    tabindex: 0,
    role: "group",
    "aria-label": "Table",
  });
  private readonly filter: HTMLInputElement;
  private readonly found = h("span.fxi-muted", { role: "status" });
  private readonly bar: HTMLElement;
  private readonly chart = h("div");
  private table: Table | null = null;
  private rows: Rows | null = null;
  private all = false;
  private selected: string | null = null;

  /**
   * `jump` is called with a clicked name, and the stage that has it if that may not be shown; without it,
   * rows are not clickable.
   */
  constructor(private readonly jump: ((name: string, stage?: number) => void) | null = null) {
    this.filter = h("input.fxi-filter", {
      type: "text",
      placeholder: "Filter rows",
      "aria-label": "Filter rows by words",
      spellcheck: "false",
      autocomplete: "off",
      oninput: debounce(() => this.look(), 100),
      onkeydown: (event: KeyboardEvent) => {
        event.stopPropagation();
        if (event.key !== "Escape") return;
        this.filter.value = "";
        this.look();
      },
    });
    this.bar = h("div.fxi-filter-bar.fxi-small.fxi-row", this.filter, this.found);
    this.element = h("div.fxi-table-frame.fxi-grow.fxi-column", this.chart, this.bar, this.scroll);
  }

  show(table: Table): void {
    const isSame = table.columns.map((c) => c.name).join() === this.table?.columns.map((c) => c.name).join();
    const sorting = isSame ? (this.rows?.store.state.sorting ?? []) : [];
    this.table = table;
    this.rows = rowsOf(table);
    this.rows.setSorting(sorting);
    fill(this.chart, table.chart && stackedChart(table.chart, (name) => this.jump?.(name)));
    this.all = false;
    this.look();
  }

  /** Marks the row of a node, and brings it into sight. */
  setSelected(name: string | null): void {
    if (name === this.selected) return;
    this.selected = name;
    this.mark();
  }

  private mark(): void {
    if (!this.jump) return;
    for (const row of this.scroll.querySelectorAll<HTMLElement>("tbody tr")) {
      const isSelected = this.selected !== null && row.dataset["name"] === this.selected;
      row.classList.toggle("fxi-row-selected", isSelected);
      if (isSelected) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    this.bringIntoView();
  }

  /** Scrolls the table, and never the notebook around it; also when the table is put on the screen. */
  bringIntoView(): void {
    const row = this.scroll.querySelector(".fxi-row-selected");
    if (!row) return;
    const [outer, inner] = [this.scroll.getBoundingClientRect(), row.getBoundingClientRect()];
    const top = outer.top + (this.scroll.querySelector("thead")?.getBoundingClientRect().height ?? 0);
    if (inner.top < top) this.scroll.scrollTop -= top - inner.top;
    else if (inner.bottom > outer.bottom) this.scroll.scrollTop += inner.bottom - outer.bottom;
  }

  /** The rows in the order on the screen, as tab-separated text with complete values. */
  toTsv(): string {
    if (!this.table) return "";
    const clean = (text: string): string => text.replace(/[\t\r\n]+/g, " ");
    const lines = [
      this.table.columns.map((column) => clean(column.title)),
      ...this.sorted.map((row) => row.map((cell) => clean(cellValue(cell)))),
    ];
    return lines.map((line) => line.join("\t")).join("\n");
  }

  /** Keeps the rows with all words of the filter. */
  private look(): void {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.rows?.setGlobalFilter(words.length > 0 ? words : undefined);
    this.render();
  }

  /** The rows in the order on the screen. */
  private get sorted(): Cell[][] {
    return this.rows?.getRowModel().rows.map(({ original }) => original) ?? [];
  }

  private render(): void {
    const { table } = this;
    if (!table) return;
    const rows = this.sorted;
    const shown = this.all ? rows : rows.slice(0, FIRST_ROWS);
    const all = table.rows.length;
    const hidden = table.total - all + rows.length - shown.length;
    this.bar.hidden = all < ROWS_TO_FILTER && this.filter.value === "";
    this.found.textContent =
      rows.length < all ? `${grouped(rows.length)} of ${counted(all, "row")}` : counted(all, "row");
    fill(this.scroll, [
      h(
        "table",
        {
          class: "fxi-table",
        },
        h("thead", [h("tr", [table.columns.map((column, i) => this.header(column.title, i))])]),
        h("tbody", [shown.map((row) => this.row(row))]),
      ),
      hidden > 0 &&
        h("p.fxi-more", [
          rows.length > shown.length
            ? h("button.fxi-button", { onclick: () => ((this.all = true), this.render()) }, [
                `Show ${grouped(rows.length)} rows`,
              ])
            : null,
          table.total > all ? ` Python returns all ${grouped(table.total)} rows.` : "",
        ]),
    ]);
    this.mark();
  }

  private header(title: string, number: number): HTMLElement {
    const column = this.rows!.getColumn(String(number))!;
    const direction = column.getIsSorted();
    const place = this.rows!.store.state.sorting.length > 1 && direction ? column.getSortIndex() + 1 : null;
    const onclick = (event: MouseEvent): void => {
      column.toggleSorting(undefined, event.shiftKey);
      this.render();
      this.element.querySelectorAll<HTMLElement>("th button")[number]?.focus();
    };
    const sort = direction ? `${direction}ending` : "none";
    const hint = `Sort by ${title}; hold Shift to add it as a further key`;
    return h("th", { scope: "col", "aria-sort": sort }, [
      h(
        "button.fxi-row",
        { onclick, title: hint },
        title,
        icon("chevron"),
        place !== null && h("sup", place),
      ),
    ]);
  }

  private row(row: Cell[]): HTMLElement {
    const { columns, unlinked, stages, numbers } = this.table!;
    const name = String(row[0] ?? "");
    const goTo = this.jump;
    const jump =
      goTo && !unlinked?.includes(name) ? (): void => goTo(name, (stages ?? numbers)?.[name]) : null;
    const cells = row.map((cell, i) => {
      const { kind } = columns[i]!;
      const text = cellText(cell, kind);
      const bar = barLength(cell, kind);
      const content: Node | Node[] | string =
        i === 0 && jump
          ? h("button.fxi-link", { title: `Go to ${name}`, onclick: jump }, text)
          : kind === "bool" && cell !== null
            ? h("span", { class: `fxi-yes-no ${cell === true ? "fxi-good" : "fxi-muted"}` }, [
                icon(cell === true ? "check" : "close"),
                text,
              ])
            : text;
      const tag = i === 0 ? "th" : "td";
      const shown = h(
        tag,
        {
          class: `${isNumeric(kind) ? "fxi-num" : `fxi-cell-${kind}`}${bar === null ? "" : " fxi-bar"}`,
          title: cellValue(cell),
          scope: i === 0 ? "row" : null,
        },
        content,
      );
      if (bar !== null) shown.style.setProperty("--share", String(bar));
      return shown;
    });
    const onclick = jump
      ? (event: MouseEvent): void => {
          if (!(event.target as Element).closest("button") && !window.getSelection()?.toString()) jump();
        }
      : null;
    return h(
      "tr",
      { class: jump ? "fxi-row-link" : "", "data-name": name, ...(onclick ? { onclick } : {}) },
      cells,
    );
  }
}
