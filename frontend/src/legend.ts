/** What the colours of the graph mean: only those that the picture has. */

import { fill, h, icon } from "./dom";
import { markColour } from "./live_picture";
import type { Pass, Picture } from "./protocol";

const KINDS: [className: string, words: string][] = [
  ["fx-call_module", "Module"],
  ["fx-call_function", "Function or method"],
  ["fx-get_attr", "Parameter or buffer"],
  ["fx-group", "Group: open it"],
  ["fx-repeat", "Equal blocks"],
  ["fx-placeholder", "Input or output"],
  ["fx-chip", "Value made elsewhere"],
  ["fx-plumbing", "Sizes only"],
];

export class Legend {
  readonly element: HTMLDetailsElement;
  private readonly list = h("ul", {});

  constructor() {
    this.element = h("details", { class: "fxi-legend" }, h("summary", {}, icon("legend"), "Legend"), this.list);
  }

  show(picture: Picture, passes: Pass[]): void {
    const present = KINDS.filter(([name]) => new RegExp(`class="[^"]*\\b${name}\\b(?!-)`).test(picture.svg));
    const marks = new Set(Object.values(picture.boxes).flatMap((box) => box.marks));
    fill(
      this.element.querySelector("ul")!,
      present.map(([name, words]) => h("li", {}, h("span", { class: `fxi-swatch ${name}` }), words)),
      passes.map((pass, i) => {
        if (!marks.has(i)) return null;
        const number = h("span", { class: "fxi-number" }, i + 1);
        number.style.setProperty("--mark", markColour(i));
        return h("li", {}, number, `Changed by ${pass.name}`);
      }),
    );
  }
}
