/** What is going on, and what went wrong. */

import { fill, h, icon, iconButton } from "./dom";
import type { Status } from "./protocol";

const PATIENCE_S = 6;
const INTERRUPT = "Interrupt the kernel to stop it.";
const NO_ANSWER = "It is busy or was stopped.";

export class BusyLine {
  readonly element = h("div", { class: "fxi-busy", role: "status", hidden: true });
  private timer: ReturnType<typeof setInterval> | undefined;
  private since = 0;
  private words = "";
  private advice = "";

  show(busy: Status["busy"]): void {
    if (!busy) {
      clearInterval(this.timer);
      this.timer = undefined;
      this.element.hidden = true;
      return;
    }
    this.start(busy.text, INTERRUPT);
  }

  /** Says that nothing has come back for a while. */
  wait(): void {
    this.start("Waiting for the kernel", NO_ANSWER);
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

  dispose(): void {
    clearInterval(this.timer);
  }

  private update(): void {
    const seconds = Math.round((Date.now() - this.since) / 1000);
    fill(
      this.element,
      h("span", { class: "fxi-spinner", "aria-hidden": "true" }),
      h("span", {}, `${this.words} …`),
      seconds >= 2 && h("span", { class: "fxi-muted" }, `${seconds} s`),
      seconds >= PATIENCE_S && h("span", { class: "fxi-muted" }, this.advice),
    );
  }
}

export class Banner {
  readonly element = h("div", { class: "fxi-banner", role: "alert", hidden: true });
  private shown = 0;

  /** Shows an error, once: a dismissed one stays away. Without an error it goes. */
  show(error: Status["error"]): void {
    if (!error) this.element.hidden = true;
    if (!error) this.shown = 0;
    if (!error || error.number === this.shown) return;
    this.shown = error.number;
    fill(
      this.element,
      icon("alert"),
      h("div", { class: "fxi-banner-words" }, h("strong", {}, error.title), h("span", {}, error.text)),
      iconButton("close", "Dismiss", () => (this.element.hidden = true)),
    );
    this.element.hidden = false;
  }
}
