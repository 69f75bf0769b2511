/** Python that was asked for, which is shown and copied. */

import { copyButton, fill, h } from "../../base/dom";

export class PythonText {
  readonly element = h("section", { class: "fxi-bench", hidden: true });

  show(title: string, text: string): void {
    const copy = copyButton(`Copy ${title.toLowerCase()}`, () => text);
    this.element.hidden = false;
    this.element.setAttribute("aria-label", title);
    fill(
      this.element,
      h(
        "div",
        { class: "fxi-python" },
        h("h3", { class: "fxi-row" }, title, copy),
        h("pre", { tabindex: 0, role: "group", "aria-label": "Python" }, text),
      ),
    );
    copy.click();
  }

  close(): void {
    this.element.hidden = true;
    fill(this.element);
  }
}
