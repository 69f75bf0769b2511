/** Says in a line that the graph is not the whole model, and opens to why; what was dismissed leaves a sign. */

import { fill, focusedIn, h, icon, iconButton } from "../base/dom";
import { counted } from "../base/format";
import type { Remark, Remarks } from "../base/wire";

export class TraceBanner {
  readonly element = h("section.fxi-remarks.fxi-strip", { "aria-label": "Remarks", hidden: true });
  private readonly count = h("span");
  /** Brings the line back. */
  readonly sign = h("button.fxi-button.fxi-remark-sign", { hidden: true, onclick: () => this.showAgain() }, [
    icon("alert"),
    this.count,
  ]);

  show({ about, remarks: list }: Remarks): void {
    this.element.hidden = list.length === 0;
    this.sign.hidden = true;
    if (list.length === 0) return fill(this.element);
    const words = counted(list.length, "remark");
    this.count.textContent = String(list.length);
    this.sign.title = `${about}: ${words}`;
    this.sign.setAttribute("aria-label", `Show ${words} on the graph`);
    fill(this.element, [
      h("details.fxi-grow", [
        h("summary", icon("chevron"), icon("alert"), h("span", `${about}: `, h("b", words))),
        h("ul.fxi-scroll", list.map(remarkItem)),
      ]),
      iconButton("close", "Dismiss the remarks", () => this.dismiss()),
    ]);
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

export function remarkItem({ what, place, code, means, advice }: Remark): HTMLElement {
  const short = place.split(/[\\/]/).slice(-2).join("/");
  return h("li", [
    (place || code) &&
      h("p.fxi-remark-line.fxi-wrap", [
        place && h("span.fxi-remark-place", { title: place }, short),
        code && h("code", code),
      ]),
    h("p", h("b", what)),
    means && h("p", means),
    advice && h("p.fxi-muted", advice),
  ]);
}
