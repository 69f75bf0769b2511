/** The line above everything: the model, what is going on, search, and menus. */

import { fill, h, menu } from "../base/dom";
import type { Details } from "../base/protocol";

const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "follow edges, go to neighbours"],
  ["Shift + arrows", "move the graph"],
  ["Arrows in toolbar and passes", "go from one control to the next"],
  ["Enter", "open or close a group"],
  ["f", "show all"],
  ["+ −", "zoom"],
  ["/", "search"],
  ["?", "these keys"],
  ["o", "go to the other graph"],
  ["l", "link or unlink the two graphs"],
  ["Backspace", "previous selection"],
  ["Shift + Enter in the search", "show all search results"],
  ["Esc", "clear the search, the selection or a filter; end the preview"],
];

export class Header {
  readonly element: HTMLElement;
  private readonly title = h("h1.fxi-cut");
  private readonly keys = menu(
    { title: "Keys", "aria-label": "Keys" },
    "?",
    h("h2", "Keys"),
    h("dl", [KEYS.map(([key, words]) => [h("dt", key), h("dd.fxi-muted", words)])]),
  );
  private readonly summary = h("span.fxi-summary.fxi-cut.fxi-muted");

  constructor(busy: HTMLElement, search: HTMLElement, exports: HTMLElement) {
    this.element = h("div.fxi-header.fxi-strip", [
      h("div.fxi-heading.fxi-row", this.title, this.summary),
      busy,
      h("span.fxi-grow"),
      search,
      exports,
      this.keys,
    ]);
  }

  openKeys(): void {
    this.keys.open = true;
    this.keys.querySelector("summary")?.focus();
  }

  /** Name of the model. */
  get name(): string {
    return this.title.textContent ?? "";
  }

  show(model: Details): void {
    this.title.textContent = model.title;
    const counts = model.fields.slice(0, 2);
    fill(this.summary, [
      counts.map(({ label, value }, i) => [
        i > 0 && " · ",
        h("span", `${value} ${(value === "1" ? label.replace(/s$/, "") : label).toLowerCase()}`),
      ]),
    ]);
  }
}
