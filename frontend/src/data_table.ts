/** A table that can be sorted, filtered, copied and clicked. */

import { debounce, fill, h, icon } from "./dom";
import { cellText, cellValue, compareCells, counted } from "./format";
import type { Cell, Table } from "./protocol";

const FIRST_ROWS = 200;
/** Shorter tables are seen at a glance. */
const ROWS_TO_FILTER = 9;

export class DataTable {
  readonly element: HTMLElement;
  private readonly scroll = h("div", { class: "fxi-table-scroll", tabindex: 0, role: "group", "aria-label": "Table" });
  private readonly filter: HTMLInputElement;
  private readonly found = h("span", { class: "fxi-muted", role: "status" });
  private readonly bar: HTMLElement;
  private table: Table | null = null;
  private sorted: { column: number; descending: boolean } | null = null;
  private all = false;

  /** `jump` is called with the first cell of a clicked row; without it, rows are not clickable. */
  constructor(private readonly jump: ((name: string) => void) | null = null) {
    this.filter = h("input", {
      type: "text",
      class: "fxi-filter",
      placeholder: "Filter rows",
      "aria-label": "Show only rows with all of these words",
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
    this.bar = h("div", { class: "fxi-filter-bar" }, this.filter, this.found);
    this.element = h("div", { class: "fxi-table-frame" }, this.bar, this.scroll);
  }

  show(table: Table): void {
    if (table.columns.map((c) => c.name).join() !== this.table?.columns.map((c) => c.name).join()) this.sorted = null;
    this.table = table;
    this.all = false;
    this.render();
  }

  /** The rows in the order on the screen, as tab-separated text with complete values. */
  toTsv(): string {
    if (!this.table) return "";
    const clean = (text: string): string => text.replace(/[\t\r\n]+/g, " ");
    const lines = [this.table.columns.map((column) => clean(column.title)), ...this.rows().map((row) => row.map((cell) => clean(cellValue(cell))))];
    return lines.map((line) => line.join("\t")).join("\n");
  }

  private rows(): Cell[][] {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (this.table?.rows ?? []).filter((row) => {
      const text = words.length > 0 ? row.map(cellValue).join(" ").toLowerCase() : "";
      return words.every((word) => text.includes(word));
    });
    if (this.sorted) {
      const { column, descending } = this.sorted;
      rows.sort((a, b) => (descending ? -1 : 1) * compareCells(a[column] ?? null, b[column] ?? null));
    }
    return rows;
  }

  private render(): void {
    const { table } = this;
    if (!table) return;
    const rows = this.rows();
    const shown = this.all ? rows : rows.slice(0, FIRST_ROWS);
    const all = table.rows.length;
    const hidden = table.total - all + rows.length - shown.length;
    this.bar.hidden = all < ROWS_TO_FILTER && this.filter.value === "";
    this.found.textContent = rows.length < all ? `${rows.length.toLocaleString("en-US")} of ${counted(all, "row")}` : counted(all, "row");
    fill(
      this.scroll,
      h(
        "table",
        { class: "fxi-table" },
        h("thead", {}, h("tr", {}, table.columns.map((column, i) => this.header(column.title, i)))),
        h("tbody", {}, shown.map((row) => this.row(row))),
      ),
      hidden > 0 &&
        h(
          "p",
          { class: "fxi-more" },
          rows.length > shown.length
            ? h("button", { type: "button", class: "fxi-button", onclick: () => ((this.all = true), this.render()) }, `Show ${rows.length.toLocaleString("en-US")} rows`)
            : null,
          table.total > all ? ` The table has ${table.total.toLocaleString("en-US")} rows; session.transformed_nodes() returns all of them.` : "",
        ),
    );
  }

  private header(title: string, column: number): HTMLElement {
    const descending = this.sorted?.column === column ? this.sorted.descending : null;
    const sort = descending === null ? "none" : descending ? "descending" : "ascending";
    const onclick = (): void => {
      this.sorted = descending === true ? null : { column, descending: descending === false };
      this.render();
      this.element.querySelectorAll<HTMLElement>("th button")[column]?.focus();
    };
    return h("th", { scope: "col", "aria-sort": sort }, h("button", { type: "button", onclick, title: `Sort by ${title}` }, title, icon("chevron")));
  }

  private row(row: Cell[]): HTMLElement {
    const { columns } = this.table!;
    const name = String(row[0] ?? "");
    const cells = row.map((cell, i) => {
      const { kind } = columns[i]!;
      const text = cellText(cell, kind);
      const isNumber = kind === "number" || kind === "integer";
      const content: Node | string =
        i === 0 && this.jump
          ? h("button", { type: "button", class: "fxi-link", title: `Go to ${name}`, onclick: () => this.jump?.(name) }, text)
          : kind === "bool"
            ? h("span", { class: cell === true ? "fxi-yes" : "fxi-no" }, icon(cell === true ? "check" : "close"), text)
            : text;
      const tag = i === 0 ? "th" : "td";
      return h(tag, { class: isNumber ? "fxi-num" : `fxi-cell-${kind}`, title: cellValue(cell), scope: i === 0 ? "row" : null }, content);
    });
    const onclick = this.jump
      ? (event: MouseEvent): void => {
          if (!(event.target as Element).closest("button") && !window.getSelection()?.toString()) this.jump?.(name);
        }
      : null;
    return h("tr", { class: this.jump ? "fxi-row-link" : "", ...(onclick ? { onclick } : {}) }, cells);
  }
}
