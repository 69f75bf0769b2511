/** The stages of a session: which of them the graph shows, and what it is compared with. */

import { fill, h, iconButton, type IconName } from "./dom";
import type { Comparison, Stages } from "./protocol";

const COMPARISONS: Record<Comparison, string> = { "": "Stage alone", below: "Changes from the stage below", original: "Changes from the original" };

export class StageBar {
  readonly element = h("div", { class: "fxi-stages", role: "group", "aria-label": "Stage", hidden: true });

  constructor(private readonly show: (stage: number, compared: Comparison) => void) {}

  update({ names, shown, compared, comparisons }: Stages): void {
    this.element.hidden = names.length < 2;
    const focused = this.element.contains(document.activeElement) ? (document.activeElement as HTMLElement).title : "";
    const stages = h(
      "select",
      { "aria-label": "Stage of the graph", title: "Stage of the graph", onchange: () => this.show(Number(stages.value), "") },
      names.map((name, i) => h("option", { value: i, selected: i === shown }, i === 0 ? name : `${i}. ${name}`)),
    );
    const comparison = h(
      "select",
      { "aria-label": "Compare with", title: "Compare with", hidden: comparisons.length === 0, onchange: () => this.show(shown, comparison.value as Comparison) },
      (["", ...comparisons] as Comparison[]).map((name) => h("option", { value: name, selected: name === compared }, COMPARISONS[name])),
    );
    const step = (label: string, to: number, name: IconName): HTMLButtonElement => {
      const button = iconButton(name, label, () => this.show(to, compared && to > 0 ? (to === 1 ? "original" : compared) : ""));
      button.disabled = to < 0 || to >= names.length;
      return button;
    };
    fill(this.element, step("Stage before", shown - 1, "back"), stages, step("Next stage", shown + 1, "chevron"), comparison);
    if (focused) [...this.element.querySelectorAll<HTMLElement>("[title]")].find((element) => element.title === focused)?.focus();
  }
}
