/** A slider through the stack of passes. */

import { fill, h } from "../base/dom";

/** With more stages their numbers stand too close to be read. */
const MOST_NUMBERS = 16;

/** A stage that the slider stops at; not all need be. */
export interface Stop {
  stage: number;
  title: string;
}

export class StageSlider {
  private readonly input = h("input", {
    ...{ type: "range", min: 0, step: 1, "aria-label": "Stage" },
    oninput: () => this.choose(),
  });
  private readonly ticks = h("div.fxi-ticks", { "aria-hidden": "true" });
  readonly element = h("div.fxi-slider", this.input, this.ticks);
  private stops: Stop[] = [];
  private shown = 0;
  /**
   * Whether a stage was asked for that is not there yet; what is chosen meanwhile is asked for afterwards.
   */
  private isWaiting = false;
  private asked = 0;

  constructor(private readonly show: (stage: number) => void) {}

  update(stops: Stop[], shown: number): void {
    this.shown = shown;
    if (JSON.stringify(stops) !== JSON.stringify(this.stops)) {
      const wanted = this.wanted;
      this.stops = stops;
      this.input.max = String(stops.length - 1);
      this.element.style.setProperty("--stages", String(stops.length));
      const tick = ({ stage, title }: Stop): HTMLElement =>
        h("span.fxi-tick", { title, onclick: () => this.choose(stage) }, [
          stops.length <= MOST_NUMBERS && String(stage),
        ]);
      fill(this.ticks, stops.map(tick));
      if (wanted !== undefined) this.moveTo(wanted);
    }
    if (!this.isWaiting) this.moveTo(shown);
    this.say();
  }

  /** Says that what was asked for is shown, or will not be. */
  settle(): void {
    if (!this.isWaiting) return;
    this.isWaiting = false;
    const { wanted } = this;
    if (wanted !== undefined && wanted !== this.shown && wanted !== this.asked) this.ask(wanted);
    else this.moveTo(this.shown);
    this.say();
  }

  /** The stage that the slider stands at. */
  private get wanted(): number | undefined {
    return this.stops[Number(this.input.value)]?.stage;
  }

  private moveTo(stage: number): void {
    const place = this.stops.findIndex((stop) => stop.stage === stage);
    this.input.value = String(Math.max(0, place));
  }

  private choose(stage = this.wanted): void {
    if (stage === undefined) return;
    this.moveTo(stage);
    this.say();
    if (!this.isWaiting && stage !== this.shown) this.ask(stage);
  }

  private ask(stage: number): void {
    this.isWaiting = true;
    this.asked = stage;
    this.show(stage);
  }

  private say(): void {
    const place = Number(this.input.value);
    const title = this.stops[place]?.title ?? "";
    this.input.setAttribute("aria-valuetext", title);
    this.input.title = title;
    [...this.ticks.children].forEach((tick, i) => tick.classList.toggle("fxi-tick-shown", i === place));
  }
}
