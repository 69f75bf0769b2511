/** The search field: the kernel looks through all nodes, shown or not. */

import { debounce, fill, focusedIn, h, icon } from "../base/dom";
import { grouped } from "../base/format";
import type { SearchAnswer, SearchResult } from "../base/protocol";
import { FIELDS } from "../base/query_help";

export interface SearchActions {
  search(query: string): void;
  choose(result: SearchResult): void;
  /** Lights up in the graph all that a query finds. */
  lightUp(query: string): void;
  leave(): void;
}

/** A row of the list, and what choosing it does. */
interface Row {
  element: HTMLElement;
  choose(): void;
}

const NOTHING: SearchAnswer = { results: [], total: 0, nodes: 0, message: "" };
let numberOfBoxes = 0;

export class SearchBox {
  private readonly id = `fxi-search-${(numberOfBoxes += 1)}`;
  private readonly askSoon = debounce(() => this.ask(), 120);
  private readonly list = h("ul.fxi-scroll", {
    id: this.id,
    role: "listbox",
    "aria-label": "Results",
    tabindex: -1, // browsers stop at what scrolls, and it goes when the field is left
  });
  private readonly note = h("p.fxi-search-note.fxi-muted", { id: `${this.id}-note`, role: "status" });
  private readonly popup = h(
    "div.fxi-results",
    { hidden: true, onpointerdown: (event: PointerEvent) => event.preventDefault() },
    this.list,
    this.note,
  );
  private readonly input = h("input.fxi-search-input", {
    type: "text",
    placeholder: "Search nodes  /",
    "aria-label": "Search nodes by name, op, target, module, class, shape, dtype or source",
    "aria-describedby": `${this.id}-note`,
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": this.id,
    "aria-autocomplete": "list",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => {
      this.waiting = null;
      this.askSoon();
    },
    onkeydown: (event: KeyboardEvent) => this.onKey(event),
    onfocus: () => (this.query ? this.rows.length > 0 && this.isCurrent && this.reveal() : this.showHelp()),
    onblur: () => setTimeout(() => this.hide(), 150),
  });
  private readonly help = FIELDS.map(({ field, example, words }) => ({
    element: h("li.fxi-search-field", h("code", example), h("small.fxi-small.fxi-muted", words)),
    choose: () => this.begin(`${field}:`),
  }));
  readonly element = h("div.fxi-search", { role: "search" }, icon("search"), this.input, this.popup);
  private answer = NOTHING;
  private rows: Row[] = [];
  /** The row that Enter chooses; -1 for none. */
  private active = -1;
  private asked = "";
  /** What the results on show were asked for. */
  private answered = "";
  /** What is to be done once the answer is there. */
  private waiting: "choose" | "light up" | null = null;

  constructor(private readonly actions: SearchActions) {}

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  show(answer: SearchAnswer): void {
    if (focusedIn(this.element) !== this.input || !this.query) return;
    this.answer = answer;
    this.answered = this.asked;
    const { results, total, nodes, message, suggestion } = answer;
    const waiting = this.isCurrent ? this.waiting : null;
    if (waiting === "choose" && results[0]) return this.choose(results[0]);
    if (waiting === "light up" && nodes > 0) return this.lightUp();
    const rows = results.map((result): Row => ({
      element: resultRow(result),
      choose: () => this.choose(result),
    }));
    if (nodes > 0) rows.push({ element: allRow(nodes), choose: () => this.lightUp() });
    if (suggestion)
      rows.push({
        element: h("li.fxi-search-all", `Did you mean ${suggestion}?`),
        choose: () => this.begin(suggestion),
      });
    const words =
      total === 0
        ? "No matches."
        : results.length < total
          ? `The first ${results.length} of ${grouped(total)}: refine the query`
          : "";
    this.fillWith("Results", rows, message || words);
    this.activate(rows.length > 0 ? 0 : -1);
  }

  private get query(): string {
    return this.input.value.trim();
  }

  /** Whether the results are those of what is in the field; who types fast and presses Enter means these. */
  private get isCurrent(): boolean {
    return this.answered === this.query;
  }

  /** Says what can be asked for; choosing a field begins a term. */
  private showHelp(): void {
    if (focusedIn(this.element) !== this.input) return;
    this.answer = NOTHING;
    this.answered = this.asked = "";
    this.fillWith(
      "Fields",
      this.help,
      "All terms must match. Prefix a term with - to exclude it: -op:get_attr",
    );
    this.activate(-1);
  }

  private begin(text: string): void {
    this.input.value = text;
    this.input.dispatchEvent(new Event("input"));
  }

  private fillWith(label: string, rows: Row[], note: string): void {
    this.rows = rows;
    this.list.setAttribute("aria-label", label);
    rows.forEach(({ element, choose }, i) => {
      element.setAttribute("role", "option");
      element.id = `${this.id}-${i}`;
      element.onpointerdown = (event) => {
        event.preventDefault();
        choose();
      };
    });
    fill(this.list, [rows.map(({ element }) => element)]);
    this.list.hidden = rows.length === 0;
    fill(this.note, note);
    this.note.hidden = note === "";
    this.reveal();
  }

  private onKey(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.input.value = "";
      this.hide();
      this.actions.leave();
    } else if (event.key === "Enter") {
      this.enter(event.shiftKey);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.popup.hidden && !this.query) return this.showHelp();
      const count = this.rows.length;
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (count)
        this.activate(this.active < 0 && step < 0 ? count - 1 : (this.active + step + count) % count);
    }
  }

  private enter(all: boolean): void {
    if (this.query && !this.isCurrent) {
      this.waiting = all ? "light up" : "choose";
      // Whoever presses Enter has typed all of it.
      if (this.asked !== this.query) this.ask();
    } else if (all && this.answer.nodes > 0) this.lightUp();
    else if (!all && !this.popup.hidden) this.rows[this.active]?.choose();
  }

  private ask(): void {
    this.asked = this.query;
    if (this.asked) this.actions.search(this.asked);
    else this.showHelp();
  }

  private choose(result: SearchResult): void {
    this.waiting = null;
    this.hide();
    this.actions.choose(result);
    this.actions.leave();
  }

  private lightUp(): void {
    this.waiting = null;
    this.hide();
    this.actions.lightUp(this.answered);
    this.actions.leave();
  }

  private activate(row: number): void {
    this.active = row;
    this.rows.forEach(({ element }, i) => {
      element.setAttribute("aria-selected", String(i === row));
      if (i === row) element.scrollIntoView?.({ block: "nearest" });
    });
    if (row < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `${this.id}-${row}`);
  }

  private reveal(): void {
    this.popup.hidden = false;
    this.input.setAttribute("aria-expanded", String(this.rows.length > 0));
  }

  private hide(): void {
    this.popup.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}

function resultRow({ kind, name, text }: SearchResult): HTMLElement {
  return h("li", [
    h("span", { class: `fxi-result-kind fx-${kind}` }, kind),
    h(
      "span.fxi-column.fxi-grow",
      h("strong.fxi-cut", name.replace(/(^|\.)#(?=.)/g, "$1")),
      h("small.fxi-cut.fxi-small.fxi-muted", text),
    ),
  ]);
}

function allRow(nodes: number): HTMLElement {
  const words = nodes === 1 ? "Show it in the graph" : `Show all ${grouped(nodes)} in the graph`;
  return h("li.fxi-search-all", icon("target"), h("span", words), h("kbd.fxi-muted", "Shift + Enter"));
}
