/** The line above the graph: tools for looking at it. */

import { h, icon, type IconName } from "../base/dom";
import { rove } from "../base/roving";

export interface Tool {
  icon: IconName;
  label: string;
  /** The key that does the same in the graph. */
  key?: string;
  press(): void;
  /** For a switch: whether it is on. */
  isOn?(): boolean;
  /** Says its label where there is room. */
  isNamed?: boolean;
}

export class Toolbar {
  readonly element: HTMLElement;
  private readonly switches: [button: HTMLElement, isOn: () => boolean][] = [];

  /** Shows tools, and what else stands between them, from left to right. */
  constructor(...items: (Tool | HTMLElement)[]) {
    this.element = h("div.fxi-toolbar.fxi-strip", { role: "toolbar", "aria-label": "Graph" }, [
      items.map((item) => (item instanceof HTMLElement ? item : this.button(item))),
    ]);
    rove(this.element, "button, select");
    this.refresh();
  }

  /** Shows which switches are on. */
  refresh(): void {
    for (const [made, isOn] of this.switches) made.setAttribute("aria-pressed", String(isOn()));
  }

  private button({ icon: sign, label, key, press, isOn, isNamed }: Tool): HTMLElement {
    const made = h(
      "button",
      {
        class: `fxi-button fxi-tool fxi-tool-${sign}${isNamed ? " fxi-tool-named" : ""}`,
        "aria-label": label,
        title: key ? `${label} (${key})` : label,
        onclick: () => {
          press();
          this.refresh();
        },
      },
      icon(sign),
      isNamed && h("span", label),
    );
    if (isOn) this.switches.push([made, isOn]);
    return made;
  }
}
