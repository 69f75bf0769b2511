/**
 * The passes: a card for each, with its switch, its arguments and what it would change or must leave. Those that
 * find nothing are folded below the others.
 */

import {
  beforePaint,
  fill,
  focusedIn,
  focusOn,
  foldable,
  h,
  icon,
  iconButton,
  type IconName,
  textButton,
} from "../../base/dom";
import { counted, grouped } from "../../base/format";
import { rove } from "../../base/roving";
import type { ToSession } from "../../base/protocol";
import { markColour } from "../../graph/live_picture";
import { PassErrors } from "./pass_error";
import { PassSummaries } from "./pass_summary";
import type { Pass, Passes } from "../../base/wire";

export interface PassActions {
  send(message: ToSession): void;
  choose(signature: string | null): void;
  limit(signature: string, node: string, again: boolean): void;
  /** Goes to a node, of the stage with a number where one is given. */
  jump(node: string, stage?: number): void;
  whyNot(pass: Pass, node: string): void;
  /** Goes through the rewrites of a pass one by one. */
  step(pass: Pass): void;
}

const GAP = 10;
/** What a closed card has. */
const OF_CARDS = ".fxi-card-head button, .fxi-reasons > summary, .fxi-preview-button";

export class PassList {
  readonly element: HTMLElement;
  private readonly list = h("div.fxi-cards.fxi-grow.fxi-scroll");
  private readonly drawn: () => void;
  private readonly made = h("div.fxi-made.fxi-small.fxi-muted", { role: "note", hidden: true });
  private readonly undo: HTMLButtonElement;
  private readonly redo: HTMLButtonElement;
  private readonly reset: HTMLButtonElement;
  private readonly summaries: PassSummaries;
  private readonly errors: PassErrors;
  private state: Passes = { passes: [], canUndo: false, canRedo: false };
  private chosen: string | null = null;
  /** The key of the pass that was switched last, and how it is to be; until it is. */
  private pending: { key: string; on: boolean } | null = null;
  private previewed: string | null = null;
  private busy = false;
  /** What had the focus when it was last drawn, and could not keep it while the kernel was busy. */
  private focused: string | undefined;
  /** The keys of the passes that find nothing; it stays as it is while some have not been asked. */
  private idle = new Set<string>();
  /** Has "idle" while the passes that find nothing are shown. */
  private readonly opened = new Set<string>();

  constructor(private readonly actions: PassActions) {
    this.undo = iconButton("undo", "Undo", () => actions.send({ type: "undo" }));
    this.redo = iconButton("redo", "Redo", () => actions.send({ type: "redo" }));
    this.reset = iconButton("reset", "Switch all passes off", () => actions.send({ type: "reset" }));
    this.summaries = new PassSummaries(actions);
    this.errors = new PassErrors((node, stage) => actions.jump(node, stage));
    this.drawn = beforePaint(rove(this.list, OF_CARDS, ".fxi-card-name"));
    this.element = h("section.fxi-panel.fxi-grow.fxi-column.fxi-passes", { "aria-label": "Passes" }, [
      h("header.fxi-panel-head.fxi-strip", [
        h("h2", "Passes"),
        h("span.fxi-grow"),
        this.undo,
        this.redo,
        this.reset,
      ]),
      this.list,
      this.made,
    ]);
  }

  /** `chosen` is the signature of the pass that is open, brought into view if it is another one. */
  show(state: Passes, chosen = this.chosen): void {
    const known = new Set(this.state.passes.map(({ key }) => key));
    const added = known.size > 0 ? state.passes.find(({ key }) => !known.has(key)) : undefined;
    const failed = state.passes.find(
      (pass) =>
        pass.error &&
        !this.state.passes.some((p) => p.signature === pass.signature && p.error?.text === pass.error?.text),
    );
    this.state = state;
    if (failed || state.passes.some(({ key, on }) => key === this.pending?.key && on === this.pending.on))
      this.pending = null;
    if (!state.passes.some(({ isLooking }) => isLooking))
      this.idle = new Set(state.passes.filter(({ matched }) => matched === 0).map(({ key }) => key));
    const isOther = chosen !== this.chosen;
    this.chosen = chosen;
    this.showMade();
    this.render();
    const changed = (failed ?? added)?.signature ?? (isOther ? chosen : null);
    if (changed) this.bringIntoView(changed);
  }

  setChosen(signature: string | null): void {
    this.chosen = signature;
    this.render();
    if (signature) this.bringIntoView(signature);
  }

  setPreviewed(signature: string | null): void {
    if (signature === this.previewed) return;
    this.previewed = signature;
    this.render();
  }

  /** Puts the focus on the name of a pass. */
  focus(signature: string): void {
    const pass = this.state.passes.find((pass) => pass.signature === signature);
    if (pass) focusOn(this.list, `name-${pass.key}`);
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
    const places = passes.map((_, place) => place);
    const isIdle = (place: number): boolean => this.idle.has(passes[place]!.key) && !passes[place]!.on;
    const [folded, shown] = [places.filter(isIdle), places.filter((place) => !isIdle(place))];
    fill(this.list, [
      passes.length === 0 && h("p.fxi-muted", "This session offers no passes."),
      passes.length > 0 && h("h3.fxi-cards-head", { "aria-live": "polite" }, this.heading()),
      shown.length > 0 && this.cards(shown, shown),
      folded.length > 0 && this.fold(folded),
    ]);
    this.drawn();
    if (this.focused) focusOn(this.list, this.focused);
  }

  /** Says when a report was made, and of what, and why nothing can be switched in it. */
  private showMade(): void {
    const { made = [] } = this.state;
    this.made.hidden = made.length === 0;
    fill(this.made, [made.map((line) => h("p", line))]);
  }

  /** Returns how many passes can change the model, or have changed it. */
  private heading(): string {
    const { passes } = this.state;
    const unknown = passes.filter(({ isLooking }) => isLooking).length;
    if (unknown > 0) return `Looking for candidates: ${passes.length - unknown} of ${passes.length} passes …`;
    const able = passes.filter(({ matched, on }) => (matched === null ? on : matched > 0)).length;
    const open = passes.filter(({ matched, on, note }) => matched === null && !on && !note).length;
    const count = (number: number): string => grouped(number);
    if (able === 0) return `${open === 0 ? "No pass can" : `${count(open)} may`} change this model`;
    return `${count(able)} can change this model${open > 0 ? `, ${count(open)} may` : ""}`;
  }

  /** Returns cards of the passes in some places of the stack, and the places that they can be moved to. */
  private cards(listed: number[], places: number[]): HTMLElement {
    return h("ul.fxi-card-list", [
      listed.map((place) => this.card(this.state.passes[place]!, place, places)),
    ]);
  }

  private fold(places: number[]): HTMLElement {
    const words = `${counted(places.length, "finds", "find")} nothing here`;
    return h(
      "details.fxi-reasons.fxi-idle-passes",
      { ...foldable(this.opened, "idle") },
      h("summary", { "data-focus": "idle" }, icon("chevron"), h("span", words)),
      // Where a pass stands among those that are not folded matters: they may leave it something to do.
      this.cards(
        places,
        this.state.passes.map((_, place) => place),
      ),
    );
  }

  /** Scrolls the list, and never the notebook around it. */
  private bringIntoView(signature: string): void {
    const card = [...this.list.querySelectorAll<HTMLElement>("[data-pass]")].find(
      (e) => e.dataset["pass"] === signature,
    );
    if (!card) return;
    const fold = card.closest<HTMLDetailsElement>("details.fxi-idle-passes");
    if (fold) {
      fold.open = true;
      this.opened.add("idle");
    }
    const [outer, inner] = [this.list.getBoundingClientRect(), card.getBoundingClientRect()];
    this.list.scrollTop +=
      Math.min(0, inner.top - outer.top - GAP) +
      Math.max(0, Math.min(inner.bottom - outer.bottom + GAP, inner.top - outer.top - GAP));
    this.list.scrollLeft +=
      Math.min(0, inner.left - outer.left - GAP) + Math.max(0, inner.right - outer.right + GAP);
  }

  /** `place` is that of the pass in the stack, and `places` are those that it can be moved to. */
  private card(pass: Pass, place: number, places: number[]): HTMLElement {
    const chosen = pass.signature === this.chosen;
    const pending = pass.key === this.pending?.key ? this.pending : null;
    const { on } = pending ?? pass;
    const looks = [
      (chosen || pass.signature === this.previewed) && "fxi-chosen",
      pass.on && "fxi-on",
      pass.matched === 0 && !pass.on && "fxi-idle",
    ];
    return h(
      "li.fxi-card",
      {
        class: looks.filter(Boolean).join(" "),
        style: `--mark: ${markColour(place)}`,
        "data-pass": pass.signature,
        onclick: (event: MouseEvent) => {
          if (!(event.target as Element).closest("button, summary, a, .fxi-reasons"))
            this.actions.choose(chosen ? null : pass.signature);
        },
      },
      h("div.fxi-card-head", [
        h("span.fxi-number", { "aria-hidden": "true" }, pass.stage ?? "–"),
        h(
          "button.fxi-card-name.fxi-grow",
          {
            "aria-pressed": chosen,
            "data-focus": `name-${pass.key}`,
            title: [pass.name, pass.description].filter(Boolean).join(": "),
            onclick: () => this.actions.choose(chosen ? null : pass.signature),
          },
          pass.name,
        ),
        h("button", {
          role: "switch",
          class: `fxi-switch${pending ? " fxi-pending" : ""}`,
          "aria-checked": on,
          "aria-label": pass.name,
          "data-focus": `switch-${pass.key}`,
          title: this.state.fixed
            ? `${pass.name} is ${pass.on ? "on" : "off"}`
            : `Switch ${pass.name} ${pass.on ? "off" : "on"}`,
          // Who clicks twice wants what was before.
          disabled: (this.busy && !pending) || this.state.fixed === true,
          onclick: () => {
            this.pending = { key: pass.key, on: !on };
            this.actions.send({ type: "toggle", signature: pass.signature, on: !on });
            this.render();
          },
        }),
      ]),
      pass.description && h("p.fxi-card-text.fxi-muted", pass.description),
      pass.arguments.length > 0 &&
        h("div.fxi-arguments.fxi-wrap", [
          pass.arguments.map(({ name, value }) =>
            h("code.fxi-cut", { title: `${name}=${value}` }, `${name}=${value}`),
          ),
        ]),
      h("div.fxi-card-foot", [
        this.summaries.of(pass, { busy: this.busy, fixed: this.state.fixed === true }, chosen),
        this.previewButton(pass),
      ]),
      chosen && !this.state.fixed && this.tools(pass, place, places),
      this.errors.of(pass.key, pass.error),
    );
  }

  /** Moves a pass to another of the places it can be moved to: past those that are not among them. */
  private moveBy(pass: Pass, place: number, places: number[], steps: number): void {
    const to = places[places.indexOf(place) + steps];
    if (to === undefined || to === place) return;
    this.actions.send({ type: "move", signature: pass.signature, place: to });
  }

  /** Returns what can be done with the chosen card besides switching it. */
  private tools(pass: Pass, place: number, places: number[]): HTMLElement {
    const { signature } = pass;
    // One that leads nowhere keeps the focus.
    const tool = (name: IconName, label: string, isEnd: boolean, action: () => void): HTMLElement =>
      iconButton(name, label, action, "", {
        ...{ "data-focus": `${name}-${pass.key}`, "aria-disabled": isEnd, disabled: this.busy },
      });
    return h("div.fxi-card-tools", { role: "group", "aria-label": `Place of ${pass.name}` }, [
      pass.steps > 0 && this.stepButton(pass),
      tool("up", "Apply earlier", place === places[0], () => this.moveBy(pass, place, places, -1)),
      tool("down", "Apply later", place === places.at(-1), () => this.moveBy(pass, place, places, 1)),
      tool("close", "Remove from the list", false, () => this.actions.send({ type: "remove", signature })),
    ]);
  }

  private stepButton(pass: Pass): HTMLElement {
    const title = `Show the rewrites of ${pass.name} one by one`;
    const more = { class: "fxi-step fxi-small", "data-focus": `step-${pass.key}`, disabled: this.busy };
    return textButton("Step through", title, () => this.actions.step(pass), more);
  }

  /** Returns a button that tries a pass out, where that can show anything. */
  private previewButton(pass: Pass): HTMLElement | null {
    if (pass.on || pass.matched === 0 || this.state.fixed) return null;
    const { signature } = pass;
    const isShown = signature === this.previewed;
    const title = isShown ? "End the preview (Esc)" : `Show what ${pass.name} would do, without applying it`;
    const press = (): void =>
      this.actions.send(isShown ? { type: "end-preview" } : { type: "preview", signature });
    return textButton("Preview", title, press, {
      ...{ class: "fxi-preview-button fxi-small", "data-focus": `preview-${pass.key}` },
      ...{ "aria-pressed": isShown, "aria-label": `Preview ${pass.name}`, disabled: this.busy },
    });
  }
}
