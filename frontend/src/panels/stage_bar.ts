/** The stages of a session: which of them the graph shows, and what it is compared with, and how. */

import { type Attributes, choice, fill, h, icon, lastOf, redraw, textButton } from "../base/dom";
import { numbered } from "../base/format";
import { inRow, NOTHING_BESIDE, possible } from "../base/stages";
import type { Comparison, LookedAt, Stages } from "../base/protocol";

export class StageBar {
  readonly element = h("div.fxi-stages.fxi-strip", { role: "group", "aria-label": "Stage", hidden: true });

  private readonly slider = new StageSlider((stage) => this.goTo(stage));
  private readonly choices = h("div.fxi-stage-choices.fxi-grow.fxi-row");
  private readonly link: HTMLButtonElement;
  private stages: Stages | null = null;
  /** Whether only stages are listed of which the pass has changed something. */
  private onlyChanged = false;
  /** What was chosen last: a stage that cannot be looked at like this is looked at in the nearest way. */
  private wish = NOTHING_BESIDE;

  constructor(
    private readonly show: (wish: LookedAt) => Promise<unknown>,
    link: (on: boolean) => void,
  ) {
    const title = "Move and zoom all graphs together (l)";
    const action = (): void => link(this.link.getAttribute("aria-pressed") === "false");
    this.link = textButton([icon("link"), h("span", "Move together")], title, action, {
      ...{ class: "fxi-together fxi-small", "aria-label": "Move together" },
    });
    this.element.append(this.slider.element, this.choices);
    this.setLinked(true);
  }

  /** Says whether all graphs move together. */
  setLinked(on: boolean): void {
    this.link.setAttribute("aria-pressed", String(on));
  }

  /** Shows another stage in the way that was chosen. */
  goTo(stage: number): Promise<unknown> {
    return this.show(possible(this.wish, stage));
  }

  update(stages: Stages): void {
    this.stages = stages;
    const { names, changes, shown, compared, comparisons, beside, between, addable, preview } = stages;
    this.element.hidden = names.length < 2 || preview != null;
    const isExpected = JSON.stringify(possible(this.wish, shown)) === JSON.stringify(lookedAt(stages));
    if (!isExpected) this.wish = { compared, beside, between };
    const listed = this.listed(stages);
    const title = (i: number): string => [numbered(i, names[i]!), changes[i]].filter(Boolean).join(": ");
    this.slider.update(
      listed.map((stage) => ({ stage, title: title(stage) })),
      shown,
    );
    const named = (title: string): Attributes => ({ "aria-label": title, title });
    const stage = choice(
      (value) => void this.goTo(Number(value)),
      listed.map((i) =>
        h("option", { value: i, selected: i === shown, title: title(i) }, numbered(i, names[i]!)),
      ),
      named("Stage of the graph"),
    );
    const option = (value: Comparison, words: string): HTMLElement =>
      h("option", { value, selected: value === compared }, words);
    const comparison = choice(
      (value) => this.show(possible({ compared: comparisonOf(value), beside, between }, shown)),
      [
        option("", "Not compared"),
        option("below", "vs. the stage below"),
        comparisons
          .filter((number) => listed.includes(number))
          .map((number) => option(number, `vs. ${numbered(number, names[number]!)}`)),
      ],
      { ...named("Compare with"), hidden: comparisons.length === 0 },
    );
    const way = (label: string, title: string, pressed: boolean, action: () => void): HTMLElement =>
      h("button.fxi-way.fxi-cut", { "aria-pressed": pressed, title, onclick: () => !pressed && action() }, [
        label,
      ]);
    const ways =
      comparisons.length > 0 &&
      h("div.fxi-ways", { role: "group", "aria-label": "How stages are compared" }, [
        way("One graph", "Show one graph", !beside, () =>
          this.show({ ...lookedAt(stages), beside: false, between: [] }),
        ),
        way("Side by side", "Show stages side by side", beside, () =>
          this.show({ ...lookedAt(stages), compared: compared === "" ? "below" : compared, beside: true }),
        ),
      ]);
    redraw(this.choices, () => [
      stage,
      this.unchangedIn(stages).length > 0 && this.filter(),
      comparison,
      h("span.fxi-stage-changes.fxi-cut.fxi-muted", { title: changes[shown] ?? "" }, changes[shown]),
      beside && this.link,
      beside && addable.length > 0 && this.addition(stages),
      ways,
    ]);
  }

  /** Returns the numbers of the stages that are offered: what is shown, or compared with, is always there. */
  private listed(stages: Stages): number[] {
    const unchanged = this.onlyChanged ? this.unchangedIn(stages) : [];
    return stages.names
      .map((_, i) => i)
      .filter((i) => !unchanged.includes(i) || stages.row.includes(i) || i === stages.before);
  }

  /** Returns the numbers of the stages of which the pass has changed nothing. */
  private unchangedIn({ names, changes }: Stages): number[] {
    return names.map((_, i) => i).filter((i) => i > 0 && !changes[i]);
  }

  /** Shows one more stage: the latest below the one that is shown, or else the next above. */
  private addition({ row, shown, addable }: Stages): HTMLElement {
    const stage = addable.findLast((other) => other < shown) ?? addable[0]!;
    const onclick = (): unknown => this.show(inRow([...row, stage]));
    const title = "Show one more stage beside these";
    return textButton(icon("plus"), title, onclick, { "aria-label": "Add a pane" });
  }

  private filter(): HTMLElement {
    const press = (): void => {
      this.onlyChanged = !this.onlyChanged;
      if (this.stages) this.update(this.stages);
    };
    const more = { class: "fxi-only-changed fxi-small", "aria-pressed": this.onlyChanged };
    return textButton("Only changes", "Only passes that changed something", press, more);
  }
}

function lookedAt({ shown, compared, beside, between }: Stages): LookedAt {
  return { stage: shown, compared, beside, between };
}

function comparisonOf(value: string): Comparison {
  return value === "" || value === "below" ? value : Number(value);
}

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
  private readonly ticks = h("div.fxi-ticks.fxi-muted", { "aria-hidden": "true" });
  readonly element = h("div.fxi-slider", this.input, this.ticks);
  private stops: Stop[] = [];
  private shown = 0;
  /** Whether a stage was asked for that is not there yet. */
  private isWaiting = false;
  private readonly ask: (stage: number) => Promise<void>;

  /** `show` is done when a stage is shown, or will not be. */
  constructor(show: (stage: number) => Promise<unknown>) {
    this.ask = lastOf(show);
  }

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

  /** The stage that the slider stands at. */
  private get wanted(): number | undefined {
    return this.stops[Number(this.input.value)]?.stage;
  }

  private moveTo(stage: number): void {
    const place = this.stops.findIndex((stop) => stop.stage === stage);
    this.input.value = String(Math.max(0, place));
  }

  private async choose(stage = this.wanted): Promise<void> {
    if (stage === undefined) return;
    this.moveTo(stage);
    this.say();
    if (this.isWaiting) return this.ask(stage);
    if (stage === this.shown) return;
    this.isWaiting = true;
    await this.ask(stage);
    this.isWaiting = false;
    this.moveTo(this.shown);
    this.say();
  }

  private say(): void {
    const place = Number(this.input.value);
    const title = this.stops[place]?.title ?? "";
    this.input.setAttribute("aria-valuetext", title);
    this.input.title = title;
    [...this.ticks.children].forEach((tick, i) => tick.classList.toggle("fxi-tick-shown", i === place));
  }
}
