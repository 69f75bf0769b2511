/** Says in a line that the graph holds for less than the model, and opens to why; what was dismissed leaves a sign. */

import { fill, focusedIn, h, icon, iconButton } from "../base/dom";
import { counted } from "../base/format";
import type { Remark } from "../base/protocol";

export class TraceBanner {
  readonly element = h("section", { class: "fxi-remarks", "aria-label": "Trace", hidden: true });
  /** Brings the line back. */
  readonly sign: HTMLButtonElement;
  private readonly count = h("span", {});

  constructor() {
    this.sign = h(
      "button",
      { type: "button", class: "fxi-button fxi-remark-sign", hidden: true, onclick: () => this.showAgain() },
      icon("alert"),
      this.count,
    );
  }

  show(remarks: Remark[]): void {
    this.element.hidden = remarks.length === 0;
    this.sign.hidden = true;
    if (remarks.length === 0) return fill(this.element);
    const words = counted(remarks.length, "remark");
    this.count.textContent = String(remarks.length);
    this.sign.title = `The graph holds for less than the model: ${words}`;
    this.sign.setAttribute("aria-label", `Show ${words} on the trace`);
    fill(
      this.element,
      h(
        "details",
        {},
        h(
          "summary",
          {},
          icon("chevron"),
          icon("alert"),
          h("span", {}, "The graph holds for less than the model: ", h("b", {}, words)),
        ),
        h("ul", {}, remarks.map(item)),
      ),
      iconButton("close", "Dismiss the remarks", () => this.dismiss()),
    );
  }

  private dismiss(): void {
    const hadFocus = focusedIn(this.element) !== null;
    this.element.hidden = true;
    this.sign.hidden = false;
    if (hadFocus) this.sign.focus({ preventScroll: true });
  }

  private showAgain(): void {
    this.element.hidden = false;
    this.sign.hidden = true;
    this.element.querySelector("summary")?.focus({ preventScroll: true });
  }
}

function item({ what, place, code, means, advice }: Remark): HTMLElement {
  const short = place.split(/[\\/]/).slice(-2).join("/");
  return h(
    "li",
    {},
    h(
      "p",
      { class: "fxi-remark-line" },
      place && h("span", { class: "fxi-remark-place", title: place }, short),
      code && h("code", {}, code),
    ),
    h("p", {}, h("b", {}, what)),
    h("p", {}, means),
    h("p", { class: "fxi-muted" }, advice),
  );
}
