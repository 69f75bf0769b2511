/** The passes: a card for each, with its switch, its arguments and what it would change or must leave. */

import { fill, focusedIn, h, icon, iconButton } from "./dom";
import { counted } from "./format";
import { markColour } from "./live_picture";
import type { Pass, Passes, Reason } from "./protocol";

export interface PassActions {
  toggle(pass: Pass, on: boolean): void;
  /** Shows what a pass would do; null to show it no longer. */
  preview(signature: string | null): void;
  choose(signature: string | null): void;
  limit(signature: string, node: string, again: boolean): void;
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
  /** The numbers of the passes whose reasons are shown. */
  private readonly expanded = new Set<number>();
  private state: Passes = { passes: [], canUndo: false, canRedo: false };
  private chosen: string | null = null;
  private pending: string | null = null;
  private previewed: string | null = null;
  private busy = false;
  /** What had the focus when it was last drawn, and could not keep it while the kernel was busy. */
  private focused: string | undefined;

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

  setChosen(signature: string | null, show = true): void {
    this.chosen = signature;
    this.render();
    if (signature && show) this.bringIntoView(signature);
  }

  /** Says which pass is previewed. */
  setPreviewed(signature: string | null): void {
    this.previewed = signature;
    this.render();
  }

  /** Puts the focus on the name of a pass. */
  focus(signature: string): void {
    const number = this.state.passes.findIndex((pass) => pass.signature === signature);
    this.find(`name-${number}`)?.focus({ preventScroll: true });
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    if (!busy) this.pending = null;
    this.render();
  }

  private render(): void {
    const active = focusedIn(this.list);
    if (active) this.focused = active.dataset["focus"];
    else if (document.activeElement !== document.body) this.focused = undefined;
    const { passes, canUndo, canRedo } = this.state;
    this.undo.disabled = !canUndo || this.busy;
    this.redo.disabled = !canRedo || this.busy;
    this.reset.disabled = !passes.some((pass) => pass.on) || this.busy;
    fill(this.list, passes.length ? passes.map((pass, i) => this.card(pass, i)) : h("li", { class: "fxi-empty" }, "This session offers no passes."));
    if (this.focused) this.find(this.focused)?.focus({ preventScroll: true });
  }

  private find(focus: string): HTMLElement | undefined {
    return [...this.list.querySelectorAll<HTMLElement>("[data-focus]")].find((e) => e.dataset["focus"] === focus);
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
        class: `fxi-card${chosen || pass.signature === this.previewed ? " fxi-chosen" : ""}${pass.on ? " fxi-on" : ""}${pass.matched === 0 && !pass.on ? " fxi-idle" : ""}`,
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
            "data-focus": `name-${number}`,
            title: pass.matched === 0 && !pass.on ? `${pass.className}: nothing here for it to change` : `${pass.className}: show its nodes in the graph`,
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
          "data-focus": `switch-${number}`,
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
      h("div", { class: "fxi-card-foot" }, this.summary(pass, number), this.previewButton(pass, number)),
      pass.error && h("p", { class: "fxi-card-error" }, icon("alert"), h("span", {}, pass.error)),
    );
    card.style.setProperty("--mark", markColour(number));
    return card;
  }

  /** Returns a button that tries a pass out, where that can show anything. */
  private previewButton(pass: Pass, number: number): HTMLElement | null {
    if (pass.on || pass.matched === 0 || this.state.fixed) return null;
    const isShown = pass.signature === this.previewed;
    return h(
      "button",
      {
        type: "button",
        class: "fxi-button fxi-preview-button",
        "aria-pressed": String(isShown),
        "aria-label": `Preview ${pass.name}`,
        title: isShown ? "End the preview (Esc)" : `Show what ${pass.name} would do, without applying it`,
        "data-focus": `preview-${number}`,
        disabled: this.busy,
        onclick: () => this.actions.preview(isShown ? null : pass.signature),
      },
      "Preview",
    );
  }

  private summary(pass: Pass, number: number): HTMLElement {
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
      changed ?? (pass.matched || pass.leftOut ? h("span", { class: "fxi-matched" }, `${counted(pass.matched, "node")} to change`) : h("span", {}, `Off limits: ${pass.reasons[0]!.reason || "no reason given"}`)),
      leftOut(pass),
      pass.refused ? h("span", {}, `${pass.refused.toLocaleString("en-US")} left alone`) : null,
      rounds,
    );
    const details = h(
      "details",
      {
        class: "fxi-reasons",
        open: this.expanded.has(number),
        ontoggle: (event: Event) => {
          if ((event.target as HTMLDetailsElement).open) this.expanded.add(number);
          else this.expanded.delete(number);
        },
      },
      h("summary", { "data-focus": `why-${number}` }, icon("chevron"), words),
      pass.reasons.map((reason) => this.reason(pass, number, reason)),
    );
    return details;
  }

  private reason(pass: Pass, number: number, { reason, kind, count, nodes }: Reason): HTMLElement {
    const rest = count - nodes.length;
    return h(
      "div",
      { class: kind === "matched" ? "fxi-reason fxi-reason-match" : "fxi-reason" },
      h("div", { class: "fxi-reason-words" }, h("b", {}, `${count.toLocaleString("en-US")} × `), reason || (kind === "matched" ? "will be changed" : "left alone")),
      h(
        "div",
        { class: "fxi-reason-nodes" },
        nodes.map((name) =>
          h(
            "div",
            { class: "fxi-reason-node" },
            h("button", { type: "button", class: "fxi-link", title: name, onclick: () => this.actions.jump(name) }, name),
            pass.canBeLimited && kind !== "refused" && this.limitButton(pass, number, name, kind === "left out"),
          ),
        ),
        rest > 0 && h("span", { class: "fxi-muted" }, `and ${rest.toLocaleString("en-US")} more`),
      ),
    );
  }

  private limitButton(pass: Pass, number: number, node: string, again: boolean): HTMLElement {
    const label = again ? `Apply it to ${node} again` : pass.on ? `Take back the rewrite of ${node}` : `Leave out ${node}`;
    const button = iconButton(again ? "redo" : pass.on ? "undo" : "close", label, () => this.actions.limit(pass.signature, node, again));
    button.dataset["focus"] = `limit-${number}-${node}`;
    button.disabled = this.busy;
    button.hidden = this.state.fixed === true;
    return button;
  }
}

/** Returns how many of its rewrites a pass makes, if it leaves some out. */
function leftOut({ on, rewrites, leftOut }: Pass): HTMLElement | null {
  if (!leftOut) return null;
  const words = on && rewrites !== null ? `${rewrites.toLocaleString("en-US")} of ${counted(rewrites + leftOut, "rewrite")}` : `${leftOut.toLocaleString("en-US")} left out`;
  return h("span", { class: "fxi-left-out" }, words);
}
