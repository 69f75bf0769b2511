/** A table that can be sorted, filtered, copied and clicked. */

import { debounce, fill, h, icon } from "../base/dom";
import { barLength, cellText, cellValue, compareCells, counted, grouped, isNumeric } from "../base/format";
import type { Cell, Table } from "../base/wire";
import { stackedChart } from "./stacked_chart";

const FIRST_ROWS = 200;
/** Shorter tables are seen at a glance. */
const ROWS_TO_FILTER = 9;

/** What rows are sorted by, the first key before the others. */
interface Key {
  column: number;
  isDescending: boolean;
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
  private keys: Key[] = [];
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
      oninput: debounce(() => this.render(), 100),
      onkeydown: (event: KeyboardEvent) => {
        event.stopPropagation();
        if (event.key !== "Escape") return;
        this.filter.value = "";
        this.render();
      },
    });
    this.bar = h("div.fxi-filter-bar.fxi-small.fxi-row", this.filter, this.found);
    this.element = h("div.fxi-table-frame.fxi-grow.fxi-column", this.chart, this.bar, this.scroll);
  }

  show(table: Table): void {
    if (table === this.table) return;
    const names = ({ columns }: Table): string => columns.map(({ name }) => name).join();
    if (this.table === null || names(table) !== names(this.table)) this.keys = [];
    this.table = table;
    fill(this.chart, table.chart && stackedChart(table.chart, (name) => this.jump?.(name)));
    this.all = false;
    this.render();
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

  /** The rows with all words of the filter, in the order on the screen. */
  private get sorted(): Cell[][] {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const textOf = (row: Cell[]): string => row.map(cellValue).join(" ").toLowerCase();
    const isFound = (row: Cell[]): boolean => words.every((word) => textOf(row).includes(word));
    const order = (a: Cell[], b: Cell[]): number => {
      for (const { column, isDescending } of this.keys) {
        const difference = compareCells(a[column] ?? null, b[column] ?? null);
        if (difference !== 0) return isDescending ? -difference : difference;
      }
      return 0;
    };
    return (this.table?.rows ?? []).filter(isFound).sort(order);
  }

  /** Sorts up by a column, then down, then no longer: by it alone, or by it after others. */
  private sortBy(column: number, isFurther: boolean): void {
    const known = this.keys.find((key) => key.column === column);
    const next = known?.isDescending ? [] : [{ column, isDescending: known !== undefined }];
    if (!isFurther) this.keys = next;
    else if (!known) this.keys.push(...next);
    else this.keys = this.keys.flatMap((key) => (key === known ? next : [key]));
    this.render();
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
        "table.fxi-table",
        h("thead", [h("tr", [table.columns.map((column, i) => this.header(column.title, i))])]),
        h("tbody", [shown.map((row) => this.row(row))]),
      ),
      hidden > 0 &&
        h("p.fxi-more.fxi-muted", [
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
    const place = this.keys.findIndex(({ column }) => column === number);
    const onclick = (event: MouseEvent): void => {
      this.sortBy(number, event.shiftKey);
      this.element.querySelectorAll<HTMLElement>("th button")[number]?.focus();
    };
    const sort = place < 0 ? "none" : this.keys[place]!.isDescending ? "descending" : "ascending";
    const hint = `Sort by ${title}; hold Shift to add it as a further key`;
    return h("th", { scope: "col", "aria-sort": sort }, [
      h("button.fxi-row", { onclick, title: hint }, [
        ...[title, icon("chevron"), place >= 0 && this.keys.length > 1 && h("sup", place + 1)],
      ]),
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
