/** The stages of a session, from the original on: which of them the graph shows. */

import { fill, h, iconButton } from "./dom";
import type { Stages } from "./protocol";

export class StageBar {
  readonly element = h("div", { class: "fxi-stages", role: "group", "aria-label": "Stage", hidden: true });

  constructor(private readonly show: (stage: number) => void) {}

  update({ names, shown }: Stages): void {
    this.element.hidden = names.length < 2;
    const focused = this.element.contains(document.activeElement) ? (document.activeElement as HTMLElement).dataset["focus"] : undefined;
    const select = h(
      "select",
      { "aria-label": "Stage of the graph", title: "Stage of the graph", "data-focus": "stage", onchange: (event: Event) => this.show(Number((event.target as HTMLSelectElement).value)) },
      names.map((name, i) => h("option", { value: i, selected: i === shown }, i === 0 ? name : `${i}. ${name}`)),
    );
    const step = (label: string, to: number, name: "chevron" | "back"): HTMLButtonElement => {
      const button = iconButton(name, label, () => this.show(to));
      button.dataset["focus"] = name;
      button.disabled = to < 0 || to >= names.length;
      return button;
    };
    fill(this.element, step("Stage before", shown - 1, "back"), select, step("Next stage", shown + 1, "chevron"));
    if (focused) this.element.querySelector<HTMLElement>(`[data-focus="${focused}"]`)?.focus();
  }
}
