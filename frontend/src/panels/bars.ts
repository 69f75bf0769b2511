/** The lines above the graph: what is going on, what went wrong, which nodes are lit up, and what is a preview. */

import { fill, h, icon, iconButton, textButton } from "../base/dom";
import type { Status, Tables } from "../base/wire";
import { counted, grouped } from "../base/format";
import type { NodesFound, Preview } from "../base/protocol";

const PATIENCE_S = 6;
const OFFER_CANCEL_S = 1;
const INTERRUPT = "Interrupt the kernel to stop it.";
const NO_ANSWER = "It is busy, or was stopped.";
const QUEUED = "What was asked for comes next.";

export class BusyLine {
  private readonly text = h("span");
  private readonly time = h("span.fxi-muted");
  private readonly button = textButton("Cancel", "", () => this.cancel(), { hidden: true });
  readonly element = h("div.fxi-busy.fxi-row", { role: "status", hidden: true }, [
    h("span.fxi-spinner", { "aria-hidden": "true" }),
    ...[this.text, this.time, this.button],
  ]);
  private timer: ReturnType<typeof setInterval> | undefined;
  private since = 0;
  private words = "";
  private advice = "";
  private cancelling = false;

  /** `interrupt` stops what the kernel does, where the page can. */
  constructor(private interrupt: (() => Promise<unknown>) | null) {}

  /** Whether what is going on can be stopped from here. */
  get canCancel(): boolean {
    return this.interrupt !== null;
  }

  show(busy: Status["busy"]): void {
    if (!busy) {
      clearInterval(this.timer);
      this.timer = undefined;
      this.cancelling = false;
      this.element.hidden = true;
      return;
    }
    this.start(busy.text, INTERRUPT);
  }

  /** Says that nothing has come back for a while, because the kernel `isBusy` with something else if that is known. */
  wait(isBusy = false): void {
    if (isBusy) this.start("The kernel is busy", QUEUED);
    else this.start("Waiting for the kernel", NO_ANSWER);
  }

  cancel(): void {
    if (!this.interrupt || this.cancelling) return;
    this.cancelling = true;
    this.update();
    this.interrupt().catch(() => {
      this.interrupt = null;
      this.cancelling = false;
      this.update();
    });
  }

  dispose(): void {
    clearInterval(this.timer);
  }

  private start(words: string, advice: string): void {
    [this.words, this.advice] = [words, advice];
    if (this.timer === undefined) {
      this.since = Date.now();
      this.timer = setInterval(() => this.update(), 500);
    }
    this.element.hidden = false;
    this.update();
  }

  private update(): void {
    const seconds = Math.round((Date.now() - this.since) / 1000);
    // What the kernel does when it does not answer may be somebody's cell, which is not to be stopped from
    // here.
    const ours = this.advice === INTERRUPT;
    // With subshells, Jupyter says that a kernel is idle which runs a cell: then nobody knows why it does not answer.
    const isAdvised = !ours || (seconds >= PATIENCE_S && !this.canCancel);
    this.text.textContent = this.cancelling ? "Cancelling …" : `${this.words} …`;
    const words = [seconds >= 2 && `${seconds} s`, isAdvised && this.advice];
    this.time.textContent = words.filter(Boolean).join(" · ");
    this.button.hidden = !(ours && this.canCancel && seconds >= OFFER_CANCEL_S);
    this.button.disabled = this.cancelling;
  }
}

export class Banner {
  readonly element = h("div.fxi-banner.fxi-strip", { role: "alert", hidden: true });
  private shown = 0;

  /** Shows an error, once: a dismissed one stays away. Without an error it goes. */
  show(error: Status["error"]): void {
    if (!error) this.element.hidden = true;
    if (!error) this.shown = 0;
    if (!error || error.number === this.shown) return;
    this.shown = error.number;
    fill(this.element, [
      icon("alert"),
      h("div.fxi-banner-words.fxi-column.fxi-grow", h("strong.fxi-bad", error.title), h("span", error.text)),
      iconButton("close", "Dismiss", () => (this.element.hidden = true)),
    ]);
    this.element.hidden = false;
  }
}

export interface VerdictActions {
  judge(): void;
  compareAgain(): void;
}

/** The verdict, or why there is none: one sentence in one colour, below the name of the model. */
export class VerdictLine {
  readonly element = h("div.fxi-verdict.fxi-strip", { hidden: true });
  private readonly words = h("summary", { title: "Show the whole sentence" });
  private readonly sentence = h("div.fxi-grow", { role: "status" }, h("details", this.words));

  constructor(private readonly actions: VerdictActions) {}

  /** `on` are the passes that are on, as far as nothing else says which; without one, it is about the trace. */
  show({ outputs: { state, text, agrees, canJudge } }: Tables, areOn: boolean, on: string[]): void {
    const isBad = agrees === false || state === "failed";
    const look = agrees ? "fxi-good" : isBad ? "fxi-bad" : "fxi-muted";
    this.element.hidden = !areOn && state === "none";
    this.element.className = `fxi-verdict fxi-strip ${look}`;
    fill(this.words, [on.length > 0 && `${on.join(" + ")}: `, h("strong", text)]);
    fill(this.element, [
      look !== "fxi-muted" && icon(isBad ? "alert" : "check"),
      this.sentence,
      state === "failed" && textButton("Compare again", "", () => this.actions.compareAgain()),
      canJudge &&
        textButton("Judge", "Compare both with a run in float64", () => this.actions.judge(), {
          class: "fxi-needs-kernel",
        }),
    ]);
  }
}

export class FilterBar {
  private readonly words = h("p.fxi-grow.fxi-scroll", { role: "status" });
  readonly element = h(
    "div.fxi-found-bar.fxi-strip",
    { role: "group", "aria-label": "Filter", hidden: true },
    [this.words, iconButton("close", "Clear filter", () => this.end(), "Esc")],
  );
  private found: NodesFound | null = null;

  constructor(private readonly end: () => void) {}

  /** What is lit up. */
  get shown(): NodesFound | null {
    return this.found;
  }

  show(found: NodesFound | null): void {
    this.found = found;
    this.element.hidden = found === null;
    if (!found) return fill(this.words);
    const others = found.boxes.slice(1);
    const beside = others.flatMap((boxes) => Object.values(boxes)).reduce((all, count) => all + count, 0);
    const query = h("code", { title: found.query }, found.query);
    if (found.message) fill(this.words, query, `: ${found.message}`);
    else
      fill(this.words, [
        h("strong", counted(found.count, "node")),
        found.count === 1 ? " matches " : " match ",
        query,
        beside > 0 && `, ${grouped(beside)} in the other graph${others.length > 1 ? "s" : ""}`,
      ]);
  }
}

export interface PreviewActions {
  apply(signature: string): void;
  cancel(): void;
}

export class PreviewBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  readonly element = h(
    "div.fxi-preview.fxi-strip.fxi-wrap",
    { role: "group", "aria-label": "Preview", hidden: true },
    this.words,
    this.buttons,
  );
  private shown: Preview | null = null;
  private busy = false;

  constructor(private readonly actions: PreviewActions) {}

  get preview(): Preview | null {
    return this.shown;
  }

  show(preview: Preview | null): void {
    this.shown = preview;
    this.element.hidden = preview === null;
    if (!preview) return fill(this.words);
    fill(this.words, h("strong", `Preview of ${preview.name}`), `: ${preview.text}, nothing is applied`);
    fill(this.buttons, [
      textButton("Apply", "", () => this.busy || this.actions.apply(preview.signature), {
        class: "fxi-primary",
      }),
      textButton("Cancel", "Cancel (Esc)", () => this.busy || this.actions.cancel()),
    ]);
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    // A button that is disabled would lose the focus.
    for (const button of this.buttons.children) button.setAttribute("aria-disabled", String(busy));
  }
}
