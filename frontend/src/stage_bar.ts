/** The stages of a session: which of them the graph shows, and what it is compared with, and how. */

import { fill, focusedIn, h, icon, iconButton, type IconName } from "./dom";
import type { Comparison, Stages } from "./protocol";

const COMPARISONS: Record<Comparison, string> = { "": "Stage alone", below: "Changes from the stage below", original: "Changes from the original" };

export class StageBar {
  readonly element = h("div", { class: "fxi-stages", role: "group", "aria-label": "Stage", hidden: true });

  private readonly link: HTMLButtonElement;

  constructor(
    private readonly show: (stage: number, compared: Comparison, beside: boolean) => void,
    link: (on: boolean) => void,
  ) {
    const title = "Move and zoom both graphs together (l)";
    const action = (): void => link(this.link.getAttribute("aria-pressed") === "false");
    this.link = h("button", { type: "button", class: "fxi-button fxi-together", title, "aria-label": "Move together", onclick: action }, icon("link"), h("span", {}, "Move together"));
    this.setLinked(true);
  }

  /** Says whether both graphs move together. */
  setLinked(on: boolean): void {
    this.link.setAttribute("aria-pressed", String(on));
  }

  update({ names, shown, compared, comparisons, beside, preview }: Stages): void {
    this.element.hidden = names.length < 2 || preview != null;
    const focused = focusedIn(this.element)?.title ?? "";
    const stages = h(
      "select",
      { "aria-label": "Stage of the graph", title: "Stage of the graph", onchange: () => this.showStage(Number(stages.value), beside ? compared : "", beside) },
      names.map((_, i) => h("option", { value: i, selected: i === shown }, titleOfStage(names, i))),
    );
    const comparison = h(
      "select",
      {
        "aria-label": "Compare with",
        title: "Compare with",
        hidden: comparisons.length === 0,
        onchange: () => this.show(shown, comparison.value as Comparison, beside && comparison.value !== ""),
      },
      (["", ...comparisons] as Comparison[]).map((name) => h("option", { value: name, selected: name === compared }, COMPARISONS[name])),
    );
    const step = (label: string, to: number, name: IconName): HTMLButtonElement => {
      const button = iconButton(name, label, () => this.showStage(to, compared, beside));
      button.disabled = to < 0 || to >= names.length;
      return button;
    };
    const way = (label: string, title: string, pressed: boolean, action: () => void): HTMLElement =>
      h("button", { type: "button", class: "fxi-way", "aria-pressed": String(pressed), title, onclick: () => !pressed && action() }, label);
    const ways =
      comparisons.length > 0 &&
      h(
        "div",
        { class: "fxi-ways", role: "group", "aria-label": "How stages are compared" },
        way("One graph", "Show one graph", !beside, () => this.show(shown, compared, false)),
        way("Side by side", "Show two stages side by side", beside, () => this.show(shown, compared || comparisons[0]!, true)),
      );
    fill(this.element, step("Stage before", shown - 1, "back"), stages, step("Next stage", shown + 1, "chevron"), comparison, beside && this.link, ways);
    if (focused) [...this.element.querySelectorAll<HTMLElement>("[title]")].find((element) => element.title === focused)?.focus();
  }

  /** Goes to another stage; the first has none below, and the original nothing to be compared with. */
  private showStage(stage: number, compared: Comparison, beside: boolean): void {
    if (stage === 0 || !compared) this.show(stage, "", false);
    else this.show(stage, stage === 1 ? "original" : compared, beside);
  }
}

/** Returns what a stage is called where there are several. */
export function titleOfStage(names: string[] = [], number = 0): string {
  const name = names[number] ?? "";
  return number ? `${number}. ${name}` : name;
}
