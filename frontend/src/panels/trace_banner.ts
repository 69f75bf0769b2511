/** Says in a line that the graph is not the whole model, and opens to why. */

import { fill, h, icon, iconButton } from "../base/dom";
import { counted } from "../base/format";
import type { Remark, Remarks } from "../base/wire";

export class TraceBanner {
  readonly element = h("section.fxi-remarks.fxi-strip", { "aria-label": "Remarks", hidden: true });
  show({ about, remarks: list }: Remarks): void {
    this.element.hidden = list.length === 0;
    if (list.length === 0) return fill(this.element);
    const words = counted(list.length, "remark");
    fill(this.element, [
      h("details.fxi-grow", [
        h("summary", icon("chevron"), icon("alert"), h("span", `${about}: `, h("b", words))),
        h("ul.fxi-scroll", list.map(remarkItem)),
      ]),
      iconButton("close", "Dismiss the remarks", () => (this.element.hidden = true)),
    ]);
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
