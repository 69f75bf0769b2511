/** A slider through the stack of passes. */

import { fill, h } from "../base/dom";

/** With more stages their numbers stand too close to be read. */
const MOST_NUMBERS = 16;

export class StageSlider {
  readonly element: HTMLElement;
  private readonly input: HTMLInputElement;
  private readonly ticks = h("div", { class: "fxi-ticks", "aria-hidden": "true" });
  private titles: string[] = [];
  private shown = 0;
  /**
   * Whether a stage was asked for that is not there yet; what is chosen meanwhile is asked for afterwards.
   */
  private isWaiting = false;
  private asked = 0;

  constructor(private readonly show: (stage: number) => void) {
    this.input = h("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "Stage",
      oninput: () => this.choose(),
    });
    this.element = h("div", { class: "fxi-slider" }, this.input, this.ticks);
  }

  update(titles: string[], shown: number): void {
    this.shown = shown;
    if (titles.join("\n") !== this.titles.join("\n")) {
      this.titles = titles;
      this.input.max = String(titles.length - 1);
      this.element.style.setProperty("--stages", String(titles.length));
      const tick = (title: string, stage: number): HTMLElement =>
        h(
          "span",
          { class: "fxi-tick", title, onclick: () => this.choose(stage) },
          titles.length <= MOST_NUMBERS && String(stage),
        );
      fill(this.ticks, titles.map(tick));
    }
    if (!this.isWaiting) this.input.value = String(shown);
    this.say();
  }

  /** Says that what was asked for is shown, or will not be. */
  settle(): void {
    if (!this.isWaiting) return;
    this.isWaiting = false;
    const wanted = Number(this.input.value);
    if (wanted !== this.shown && wanted !== this.asked) this.ask(wanted);
    else this.input.value = String(this.shown);
    this.say();
  }

  private choose(stage = Number(this.input.value)): void {
    this.input.value = String(stage);
    this.say();
    if (!this.isWaiting && stage !== this.shown) this.ask(stage);
  }

  private ask(stage: number): void {
    this.isWaiting = true;
    this.asked = stage;
    this.show(stage);
  }

  private say(): void {
    const stage = Number(this.input.value);
    const title = this.titles[stage] ?? "";
    this.input.setAttribute("aria-valuetext", title);
    this.input.title = title;
    [...this.ticks.children].forEach((tick, i) => tick.classList.toggle("fxi-tick-shown", i === stage));
  }
}
