/** What is going on, and what went wrong. */

import { fill, h, icon, iconButton } from "./dom";
import type { Status } from "./protocol";

const PATIENCE_S = 6;

export class BusyLine {
  readonly element = h("div", { class: "fxi-busy", role: "status", hidden: true });
  private timer: ReturnType<typeof setInterval> | undefined;
  private since = 0;
  private words = "";

  show(busy: Status["busy"]): void {
    if (!busy) {
      clearInterval(this.timer);
      this.timer = undefined;
      this.element.hidden = true;
      return;
    }
    this.words = busy.text;
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
      seconds >= PATIENCE_S && h("span", { class: "fxi-muted" }, "Interrupt the kernel to stop it."),
    );
  }
}

export class Banner {
  readonly element = h("div", { class: "fxi-banner", role: "alert", hidden: true });
  private shown = 0;

  show(error: Status["error"]): void {
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

  hide(): void {
    this.element.hidden = true;
  }
}
