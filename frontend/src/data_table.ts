/** A table that can be sorted, filtered, copied and clicked. */

import { debounce, fill, h, icon } from "./dom";
import { barLength, cellText, cellValue, compareCells, counted, isNumeric } from "./format";
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

  /** `jump` is called with a clicked name, and the stage that has it if that may not be shown; without it, rows are not clickable. */
  constructor(private readonly jump: ((name: string, stage?: number) => void) | null = null) {
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
    const lines = [this.table.columns.map((column) => clean(column.title)), ...this.rows().map((row) => row.map((cell, i) => clean(cellValue(cell, this.table!.columns[i]!.kind))))];
    return lines.map((line) => line.join("\t")).join("\n");
  }

  private rows(): Cell[][] {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = (this.table?.rows ?? []).filter((row) => {
      const text = words.length > 0 ? row.map((cell) => cellValue(cell)).join(" ").toLowerCase() : "";
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
        { class: table.columns.some(({ kind }) => kind === "stage") ? "fxi-table fxi-table-of-stages" : "fxi-table" },
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
          table.total > all ? ` The table has ${table.total.toLocaleString("en-US")} rows; from Python you get all of them.` : "",
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
    const { columns, unlinked, stages } = this.table!;
    const name = String(row[0] ?? "");
    const firstStage = columns.findIndex(({ kind }) => kind === "stage");
    const goTo = this.jump;
    const jump = goTo && !unlinked?.includes(name) ? (): void => goTo(name, stages?.[name]) : null;
    const cells = row.map((cell, i) => {
      const { kind } = columns[i]!;
      const text = cellText(cell, kind);
      const bar = barLength(cell, kind);
      const content: Node | Node[] | string =
        i === 0 && jump
          ? h("button", { type: "button", class: "fxi-link", title: `Go to ${name}`, onclick: jump }, text)
          : kind === "stage" && goTo
            ? stageCell(cell, (node) => goTo(node, i - firstStage))
          : kind === "bool" && cell !== null
            ? h("span", { class: cell === true ? "fxi-yes" : "fxi-no" }, icon(cell === true ? "check" : "close"), text)
            : text;
      const tag = i === 0 ? "th" : "td";
      const shown = h(tag, { class: `${isNumeric(kind) ? "fxi-num" : `fxi-cell-${kind}`}${bar === null ? "" : " fxi-bar"}`, title: cellValue(cell, kind), scope: i === 0 ? "row" : null }, content);
      if (kind === "stage" && i > firstStage && text === cellText(row[i - 1] ?? null, kind)) shown.classList.add("fxi-cell-as-before");
      if (bar !== null) shown.style.setProperty("--share", String(bar));
      return shown;
    });
    const onclick = jump
      ? (event: MouseEvent): void => {
          if (!(event.target as Element).closest("button") && !window.getSelection()?.toString()) jump();
        }
      : null;
    return h("tr", { class: jump ? "fxi-row-link" : "", ...(onclick ? { onclick } : {}) }, cells);
  }
}

/** Returns what a node is at a stage, with the nodes that stand for it as links. */
function stageCell(cell: Cell, jump: (node: string) => void): Node[] {
  const [words, ...names] = Array.isArray(cell) ? cell.map(String) : [String(cell ?? "")];
  const links = names.map((name) => h("button", { type: "button", class: "fxi-link", title: `Go to ${name}`, onclick: () => jump(name) }, name));
  return [document.createTextNode(words ?? ""), ...links.flatMap((link, i) => [document.createTextNode(i ? ", " : " "), link])];
}
