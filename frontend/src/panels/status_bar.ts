/** What is going on, and what went wrong. */

import { fill, h, icon, iconButton } from "../base/dom";
import type { Status } from "../base/wire";

const PATIENCE_S = 6;
const OFFER_CANCEL_S = 1;
const INTERRUPT = "Interrupt the kernel to stop it.";
const NO_ANSWER = "It is busy or was stopped.";

export class BusyLine {
  readonly element: HTMLElement;
  private readonly text = h("span");
  private readonly time = h("span.fxi-muted");
  private readonly button: HTMLButtonElement;
  private timer: ReturnType<typeof setInterval> | undefined;
  private since = 0;
  private words = "";
  private advice = "";
  private cancelling = false;

  /** `interrupt` stops what the kernel does, where the page can. */
  constructor(private interrupt: (() => Promise<unknown>) | null) {
    this.button = h("button.fxi-button", { hidden: true, onclick: () => this.cancel() }, "Cancel");
    this.element = h("div.fxi-busy.fxi-row", { role: "status", hidden: true }, [
      h("span.fxi-spinner", { "aria-hidden": "true" }),
      this.text,
      this.time,
      this.button,
    ]);
  }

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

  /** Says that nothing has come back for a while. */
  wait(): void {
    this.start("Waiting for the kernel", NO_ANSWER);
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
    const advice = seconds >= PATIENCE_S && !(ours && this.canCancel) ? ` · ${this.advice}` : "";
    this.text.textContent = this.cancelling ? "Cancelling …" : `${this.words} …`;
    this.time.textContent = seconds >= 2 ? `${seconds} s${advice}` : "";
    this.button.hidden = !(ours && this.canCancel && seconds >= OFFER_CANCEL_S);
    this.button.disabled = this.cancelling;
  }
}

export class Banner {
  readonly element = h("div.fxi-banner", { role: "alert", hidden: true });
  private shown = 0;

  /** Shows an error, once: a dismissed one stays away. Without an error it goes. */
  show(error: Status["error"]): void {
    if (!error) this.element.hidden = true;
    if (!error) this.shown = 0;
    if (!error || error.number === this.shown) return;
    this.shown = error.number;
    fill(this.element, [
      icon("alert"),
      h("div.fxi-banner-words.fxi-column", h("strong", error.title), h("span", error.text)),
      iconButton("close", "Dismiss", () => (this.element.hidden = true)),
    ]);
    this.element.hidden = false;
  }
}
