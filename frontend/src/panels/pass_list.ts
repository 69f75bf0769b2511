/** The passes: a card for each, with its switch, its arguments and what it would change or must leave. */

import { fill, focusedIn, h, iconButton, type IconName } from "../base/dom";
import { markColour } from "../graph/live_picture";
import { dragCard } from "./card_drag";
import { PassErrors } from "./pass_error";
import { PassOffers, type OfferActions } from "./pass_offers";
import { PassSummaries } from "./pass_summary";
import type { Offer, Pass, Passes } from "../base/protocol";

export interface PassActions extends OfferActions {
  toggle(pass: Pass, on: boolean): void;
  /** Shows what a pass would do; null to show it no longer. */
  preview(signature: string | null): void;
  choose(signature: string | null): void;
  limit(signature: string, node: string, again: boolean): void;
  move(signature: string, place: number): void;
  remove(signature: string): void;
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
  private readonly offers: PassOffers;
  private readonly summaries: PassSummaries;
  private readonly errors = new PassErrors();
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
    this.offers = new PassOffers(actions);
    this.summaries = new PassSummaries(actions);
    this.element = h(
      "section",
      { class: "fxi-panel fxi-passes", "aria-label": "Passes" },
      h(
        "header",
        { class: "fxi-panel-head" },
        h("h2", {}, "Passes"),
        h("span", { class: "fxi-space" }),
        this.offers.button,
        this.undo,
        this.redo,
        this.reset,
      ),
      this.offers.element,
      this.list,
    );
  }

  show(state: Passes): void {
    const known = new Set(this.state.passes.map(({ key }) => key));
    const added = known.size > 0 ? state.passes.find(({ key }) => !known.has(key)) : undefined;
    const failed = state.passes.find(
      (pass) =>
        pass.error &&
        !this.state.passes.some((p) => p.signature === pass.signature && p.error?.text === pass.error?.text),
    );
    this.state = state;
    this.pending = null;
    this.render();
    if (added) this.offers.close();
    const changed = failed ?? added;
    if (changed) this.bringIntoView(changed.signature);
  }

  /** Shows what could be added. */
  showOffers(offers: Offer[]): void {
    this.offers.show(offers);
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
    const pass = this.state.passes.find((pass) => pass.signature === signature);
    if (pass) this.find(`name-${pass.key}`)?.focus({ preventScroll: true });
  }

  setBusy(busy: boolean): void {
    if (busy === this.busy && (busy || this.pending === null)) return;
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
    fill(
      this.list,
      passes.length
        ? passes.map((pass, i) => this.card(pass, i))
        : h("li", { class: "fxi-empty" }, "This session offers no passes."),
    );
    if (this.focused) this.find(this.focused)?.focus({ preventScroll: true });
  }

  private find(focus: string): HTMLElement | undefined {
    return [...this.list.querySelectorAll<HTMLElement>("[data-focus]")].find(
      (e) => e.dataset["focus"] === focus,
    );
  }

  /** Scrolls the list, and never the notebook around it. */
  private bringIntoView(signature: string): void {
    const card = [...this.list.querySelectorAll<HTMLElement>("[data-pass]")].find(
      (e) => e.dataset["pass"] === signature,
    );
    if (!card) return;
    const [outer, inner] = [this.list.getBoundingClientRect(), card.getBoundingClientRect()];
    this.list.scrollTop +=
      Math.min(0, inner.top - outer.top - GAP) +
      Math.max(0, Math.min(inner.bottom - outer.bottom + GAP, inner.top - outer.top - GAP));
    this.list.scrollLeft +=
      Math.min(0, inner.left - outer.left - GAP) + Math.max(0, inner.right - outer.right + GAP);
  }

  private card(pass: Pass, number: number): HTMLElement {
    const chosen = pass.signature === this.chosen;
    const pending = pass.signature === this.pending;
    const on = pending ? !pass.on : pass.on;
    const card = h(
      "li",
      {
        class: [
          "fxi-card",
          (chosen || pass.signature === this.previewed) && "fxi-chosen",
          pass.on && "fxi-on",
          pass.matched === 0 && !pass.on && "fxi-idle",
        ]
          .filter(Boolean)
          .join(" "),
        "data-pass": pass.signature,
        onclick: (event: MouseEvent) => {
          if (!(event.target as Element).closest("button, summary, a, .fxi-reasons"))
            this.actions.choose(chosen ? null : pass.signature);
        },
      },
      h(
        "div",
        { class: "fxi-card-head" },
        this.grip(pass, number),
        h(
          "button",
          {
            type: "button",
            class: "fxi-card-name",
            "aria-pressed": String(chosen),
            "data-focus": `name-${pass.key}`,
            title:
              pass.matched === 0 && !pass.on
                ? `${pass.className}: no candidates in this graph`
                : `${pass.className}: show its nodes in the graph`,
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
          "data-focus": `switch-${pass.key}`,
          title: this.state.fixed
            ? `${pass.name} is ${pass.on ? "on" : "off"}`
            : `Switch ${pass.name} ${pass.on ? "off" : "on"}`,
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
        h(
          "div",
          { class: "fxi-arguments" },
          pass.arguments.map(({ name, value }) =>
            h("code", { title: `${name}=${value}` }, `${name}=${value}`),
          ),
        ),
      h(
        "div",
        { class: "fxi-card-foot" },
        this.summaries.of(pass, this.busy, this.state.fixed === true),
        this.previewButton(pass),
      ),
      chosen && !this.state.fixed && this.tools(pass, number),
      this.errors.of(pass.key, pass.error),
    );
    card.style.setProperty("--mark", markColour(number));
    return card;
  }

  /** Returns a pass's number, by which it is dragged to another place. */
  private grip(pass: Pass, number: number): HTMLElement {
    if (this.state.fixed) return h("span", { class: "fxi-number", "aria-hidden": "true" }, number + 1);
    const of = this.state.passes.length;
    return h(
      "button",
      {
        type: "button",
        class: "fxi-number fxi-grip",
        "aria-label": `${pass.name}, ${number + 1} of ${of}: move with the arrow keys`,
        title: "Drag, or press ↑ and ↓, to apply it earlier or later",
        "data-focus": `grip-${pass.key}`,
        disabled: this.busy,
        onkeydown: (event: KeyboardEvent) => {
          const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
          if (step === undefined) return;
          event.preventDefault();
          event.stopPropagation();
          this.moveTo(pass, number, number + step);
        },
        onpointerdown: (event: PointerEvent) =>
          dragCard(event, this.list, number, (place) => this.moveTo(pass, number, place)),
      },
      number + 1,
    );
  }

  private moveTo(pass: Pass, from: number, to: number): void {
    if (to !== from && to >= 0 && to < this.state.passes.length) this.actions.move(pass.signature, to);
  }

  /** Returns what can be done with the chosen card besides switching it. */
  private tools(pass: Pass, number: number): HTMLElement {
    const tool = (name: IconName, label: string, disabled: boolean, action: () => void): HTMLElement => {
      const button = iconButton(name, label, action);
      button.dataset["focus"] = `${name}-${pass.key}`;
      button.disabled = disabled || this.busy;
      return button;
    };
    return h(
      "div",
      { class: "fxi-card-tools", role: "group", "aria-label": `Place of ${pass.name}` },
      tool("up", "Apply earlier", number === 0, () => this.moveTo(pass, number, number - 1)),
      tool("down", "Apply later", number + 1 === this.state.passes.length, () =>
        this.moveTo(pass, number, number + 1),
      ),
      tool("close", "Remove from the list", false, () => this.actions.remove(pass.signature)),
    );
  }

  /** Returns a button that tries a pass out, where that can show anything. */
  private previewButton(pass: Pass): HTMLElement | null {
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
        "data-focus": `preview-${pass.key}`,
        disabled: this.busy,
        onclick: () => this.actions.preview(isShown ? null : pass.signature),
      },
      "Preview",
    );
  }
}
