/** The search field: the kernel looks through all nodes, shown or not. */

import { debounce, fill, focusedIn, h, icon } from "./dom";
import type { SearchResult } from "./protocol";

export interface SearchActions {
  search(query: string): void;
  choose(result: SearchResult): void;
  leave(): void;
}

let numberOfBoxes = 0;

export class SearchBox {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly list: HTMLUListElement;
  private readonly id = `fxi-search-${(numberOfBoxes += 1)}`;
  private results: SearchResult[] = [];
  private active = 0;
  private asked = "";
  /** What the results on show were asked for. */
  private answered = "";
  private enterPressed = false;

  constructor(private readonly actions: SearchActions) {
    const ask = debounce(() => {
      this.asked = this.query;
      if (this.asked) actions.search(this.asked);
      else this.hide();
    }, 120);
    this.list = h("ul", { id: this.id, role: "listbox", class: "fxi-results", hidden: true, "aria-label": "Results" });
    this.input = h("input", {
      type: "text",
      class: "fxi-search-input",
      placeholder: "Search nodes  /",
      "aria-label": "Search nodes by name, op, target, module, class, shape or dtype",
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": this.id,
      "aria-autocomplete": "list",
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => {
        this.enterPressed = false;
        ask();
      },
      onkeydown: (event: KeyboardEvent) => this.onKey(event),
      onfocus: () => this.results.length > 0 && this.input.value && this.reveal(),
      onblur: () => setTimeout(() => this.hide(), 150),
    });
    this.element = h("div", { class: "fxi-search", role: "search" }, icon("search"), this.input, this.list);
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  show(results: SearchResult[], total: number): void {
    if (focusedIn(this.element) !== this.input) return;
    this.results = results;
    this.active = 0;
    this.answered = this.asked;
    if (this.enterPressed && this.isCurrent && results[0]) return this.choose(results[0]);
    const rows = results.map((result, i) => this.option(result, i));
    const rest = total - results.length;
    fill(
      this.list,
      rows,
      results.length === 0 && h("li", { class: "fxi-no-results" }, "No node or group has all of these words."),
      rest > 0 && h("li", { class: "fxi-no-results" }, `and ${rest.toLocaleString("en-US")} more: add a word`),
    );
    this.reveal();
    this.mark();
  }

  private get query(): string {
    return this.input.value.trim();
  }

  /** Whether the results are those of what is in the field; who types fast and presses Enter means these. */
  private get isCurrent(): boolean {
    return this.answered === this.query;
  }

  private option(result: SearchResult, i: number): HTMLElement {
    return h(
      "li",
      {
        role: "option",
        id: `${this.id}-${i}`,
        "aria-selected": "false",
        onpointerdown: (event: PointerEvent) => {
          event.preventDefault();
          this.choose(result);
        },
      },
      h("span", { class: `fxi-result-kind fx-${result.kind}` }, result.kind),
      h("span", { class: "fxi-result-words" }, h("strong", {}, result.name), h("small", {}, result.text)),
    );
  }

  private onKey(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      this.hide();
      this.actions.leave();
    } else if (event.key === "Enter") {
      const result = this.results[this.active];
      if (!this.isCurrent) this.enterPressed = true;
      else if (result && !this.list.hidden) this.choose(result);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const count = this.results.length;
      if (count) this.active = (this.active + (event.key === "ArrowDown" ? 1 : count - 1)) % count;
      this.mark();
    }
  }

  private choose(result: SearchResult): void {
    this.enterPressed = false;
    this.hide();
    this.actions.choose(result);
    this.actions.leave();
  }

  private mark(): void {
    [...this.list.querySelectorAll("[role=option]")].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === this.active));
      if (i === this.active) option.scrollIntoView?.({ block: "nearest" });
    });
    this.input.setAttribute("aria-activedescendant", this.results.length ? `${this.id}-${this.active}` : "");
  }

  private reveal(): void {
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  private hide(): void {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}
