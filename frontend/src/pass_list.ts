/** The passes: a card for each, with its switch, its arguments and what it would change or must leave. */

import { fill, h, icon, iconButton } from "./dom";
import { counted } from "./format";
import { markColour } from "./live_picture";
import type { Pass, Passes, Reason } from "./protocol";

export interface PassActions {
  toggle(pass: Pass, on: boolean): void;
  choose(signature: string | null): void;
  jump(node: string): void;
  undo(): void;
  redo(): void;
  reset(): void;
}

const GAP = 10;

export class PassList {
  readonly element: HTMLElement;
  private readonly list = h("ul", { class: "fxi-cards" });
  private readonly undo: HTMLButtonElement;
  private readonly redo: HTMLButtonElement;
  private readonly reset: HTMLButtonElement;
  private readonly expanded = new Set<string>();
  private state: Passes = { passes: [], canUndo: false, canRedo: false };
  private chosen: string | null = null;
  private pending: string | null = null;
  private busy = false;

  constructor(private readonly actions: PassActions) {
    this.undo = iconButton("undo", "Undo", actions.undo);
    this.redo = iconButton("redo", "Redo", actions.redo);
    this.reset = iconButton("reset", "Switch all passes off", actions.reset);
    this.element = h(
      "section",
      { class: "fxi-panel fxi-passes", "aria-label": "Passes" },
      h("header", { class: "fxi-panel-head" }, h("h2", {}, "Passes"), h("span", { class: "fxi-space" }), this.undo, this.redo, this.reset),
      this.list,
    );
  }

  show(state: Passes): void {
    const failed = state.passes.find((pass) => pass.error && !this.state.passes.some((p) => p.signature === pass.signature && p.error === pass.error));
    this.state = state;
    this.pending = null;
    this.render();
    if (failed) this.bringIntoView(failed.signature);
  }

  setChosen(signature: string | null): void {
    this.chosen = signature;
    this.render();
    if (signature) this.bringIntoView(signature);
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    if (!busy) this.pending = null;
    this.render();
  }

  private render(): void {
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.["focus"];
    const { passes, canUndo, canRedo } = this.state;
    this.undo.disabled = !canUndo || this.busy;
    this.redo.disabled = !canRedo || this.busy;
    this.reset.disabled = !passes.some((pass) => pass.on) || this.busy;
    fill(this.list, passes.length ? passes.map((pass, i) => this.card(pass, i)) : h("li", { class: "fxi-empty" }, "This session offers no passes."));
    if (focused) [...this.list.querySelectorAll<HTMLElement>("[data-focus]")].find((e) => e.dataset["focus"] === focused)?.focus();
  }

  /** Scrolls the list, and never the notebook around it. */
  private bringIntoView(signature: string): void {
    const card = [...this.list.querySelectorAll<HTMLElement>("[data-pass]")].find((e) => e.dataset["pass"] === signature);
    if (!card) return;
    const [outer, inner] = [this.list.getBoundingClientRect(), card.getBoundingClientRect()];
    this.list.scrollTop += Math.min(0, inner.top - outer.top - GAP) + Math.max(0, Math.min(inner.bottom - outer.bottom + GAP, inner.top - outer.top - GAP));
    this.list.scrollLeft += Math.min(0, inner.left - outer.left - GAP) + Math.max(0, inner.right - outer.right + GAP);
  }

  private card(pass: Pass, number: number): HTMLElement {
    const chosen = pass.signature === this.chosen;
    const pending = pass.signature === this.pending;
    const on = pending ? !pass.on : pass.on;
    const card = h(
      "li",
      {
        class: `fxi-card${chosen ? " fxi-chosen" : ""}${pass.on ? " fxi-on" : ""}${pass.matched === 0 && !pass.on ? " fxi-idle" : ""}`,
        "data-pass": pass.signature,
        onclick: (event: MouseEvent) => {
          if (!(event.target as Element).closest("button, summary, a, .fxi-reasons")) this.actions.choose(chosen ? null : pass.signature);
        },
      },
      h(
        "div",
        { class: "fxi-card-head" },
        h("span", { class: "fxi-number", "aria-hidden": "true" }, number + 1),
        h(
          "button",
          {
            type: "button",
            class: "fxi-card-name",
            "aria-pressed": String(chosen),
            "data-focus": `name-${pass.signature}`,
            title: `${pass.className}: show its nodes in the graph`,
            onclick: () => this.actions.choose(chosen ? null : pass.signature),
          },
          pass.name,
        ),
        h("button", {
          type: "button",
          role: "switch",
          class: `fxi-switch${pending ? " fxi-pending" : ""}`,
          "aria-checked": String(on),
          "aria-label": pass.name,
          "data-focus": `switch-${pass.signature}`,
          title: this.state.fixed ? `${pass.name} is ${pass.on ? "on" : "off"}` : `Switch ${pass.name} ${pass.on ? "off" : "on"}`,
          disabled: this.busy || this.state.fixed === true,
          onclick: () => {
            this.pending = pass.signature;
            this.actions.toggle(pass, !pass.on);
            this.render();
          },
        }),
      ),
      pass.description && h("p", { class: "fxi-card-text" }, pass.description),
      pass.arguments.length > 0 &&
        h("div", { class: "fxi-arguments" }, pass.arguments.map(({ name, value }) => h("code", { title: `${name}=${value}` }, `${name}=${value}`))),
      this.summary(pass),
      pass.error && h("p", { class: "fxi-card-error" }, icon("alert"), h("span", {}, pass.error)),
    );
    card.style.setProperty("--mark", markColour(number));
    return card;
  }

  private summary(pass: Pass): HTMLElement {
    if (pass.note) return h("p", { class: "fxi-card-note" }, pass.note);
    const changed = pass.on ? h("span", { class: "fxi-matched" }, `${counted(pass.changed, "node")} changed`) : null;
    const rounds = pass.preserves ? null : h("span", { title: "It does not promise to compute the same." }, "may change outputs");
    if (pass.matched === null || pass.reasons.length === 0) {
      const words = pass.matched === null ? "Shows what it changes once it is on" : "Nothing here for it to change";
      return h("p", { class: "fxi-card-note fxi-counts" }, changed ?? h("span", {}, words), rounds);
    }
    const words = h(
      "span",
      { class: "fxi-counts" },
      changed ?? (pass.matched ? h("span", { class: "fxi-matched" }, `${counted(pass.matched, "node")} to change`) : h("span", {}, `Off limits: ${pass.reasons[0]!.reason || "no reason given"}`)),
      pass.refused ? h("span", {}, `${pass.refused.toLocaleString("en-US")} left alone`) : null,
      rounds,
    );
    const details = h(
      "details",
      {
        class: "fxi-reasons",
        open: this.expanded.has(pass.signature),
        ontoggle: (event: Event) => {
          if ((event.target as HTMLDetailsElement).open) this.expanded.add(pass.signature);
          else this.expanded.delete(pass.signature);
        },
      },
      h("summary", { "data-focus": `why-${pass.signature}` }, icon("chevron"), words),
      pass.reasons.map((reason) => this.reason(reason)),
    );
    return details;
  }

  private reason(reason: Reason): HTMLElement {
    const rest = reason.count - reason.nodes.length;
    return h(
      "div",
      { class: reason.matched ? "fxi-reason fxi-reason-match" : "fxi-reason" },
      h("div", { class: "fxi-reason-words" }, h("b", {}, `${reason.count.toLocaleString("en-US")} × `), reason.reason || (reason.matched ? "will be changed" : "left alone")),
      h(
        "div",
        { class: "fxi-reason-nodes" },
        reason.nodes.map((name) => h("button", { type: "button", class: "fxi-link", title: name, onclick: () => this.actions.jump(name) }, name)),
        rest > 0 && h("span", { class: "fxi-muted" }, `and ${rest.toLocaleString("en-US")} more`),
      ),
    );
  }
}
