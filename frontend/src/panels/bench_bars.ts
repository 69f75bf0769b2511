/** What is looked at closely above the graph: the rewrites of a pass one by one, or a place at which a pass does not apply. */

import { type Child, fill, focusedIn, h, iconButton, lastOf, textButton } from "../base/dom";
import { capitalized, grouped } from "../base/format";
import { ROLE_WORDS } from "../graph/highlights";
import type { Pass, Role, ShownNearMiss, ShownRewrite } from "../base/wire";

export interface RewriteActions {
  /** Returns a rewrite; null if that has failed. */
  ask(signature: string, number: number): Promise<ShownRewrite | null>;
  light(rewrite: ShownRewrite): void;
  exclude(signature: string, node: string, again: boolean): void;
  applyUpTo(signature: string, count: number): void;
  close(): void;
}

export class RewriteBar {
  private readonly words = h("p", { role: "status" });
  private readonly ways = h("div.fxi-row", { role: "group", "aria-label": "Rewrite" }, [
    iconButton("back", "Previous rewrite", () => this.go(-1)),
    iconButton("chevron", "Next rewrite", () => this.go(1)),
  ]);
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  private readonly lines = h("div.fxi-rewrite-lines.fxi-scroll", {
    tabindex: 0,
    role: "group",
    "aria-label": "Lines",
  });
  readonly element = h("section.fxi-bench.fxi-grow.fxi-column", { "aria-label": "Rewrites", hidden: true }, [
    h("div.fxi-bench-head.fxi-row.fxi-wrap", this.ways, this.words, this.buttons),
    this.lines,
  ]);
  private pass: Pass | null = null;
  private shown: ShownRewrite | null = null;
  private wanted = 1;
  private readonly ask = lastOf((number: number) => this.show(number));
  private busy = false;

  constructor(private readonly actions: RewriteActions) {}

  get isOpen(): boolean {
    return this.pass !== null;
  }

  open(pass: Pass): void {
    if (pass.key !== this.pass?.key) this.shown = null;
    this.pass = pass;
    this.choose(this.shown?.number ?? 1);
  }

  /** Keeps to the pass while the session changes. */
  follow(passes: Pass[]): void {
    const { pass } = this;
    const now = passes.find(({ key }) => key === pass?.key);
    if (!pass) return;
    if (!now || now.steps === 0) return this.close();
    const isOther = now.signature !== pass.signature || now.stage !== pass.stage || now.steps !== pass.steps;
    this.pass = now;
    if (isOther) this.choose(this.wanted);
  }

  close(): void {
    this.pass = this.shown = null;
    this.element.hidden = true;
  }

  private async show(number: number): Promise<void> {
    const signature = this.pass?.signature;
    const rewrite = signature === undefined ? null : await this.actions.ask(signature, number);
    const { pass } = this;
    if (!pass || signature !== pass.signature || number !== this.wanted) return;
    if (!rewrite) return this.shown ? undefined : this.actions.close();
    this.shown = rewrite;
    this.wanted = rewrite.number;
    this.element.hidden = false;
    this.ways.hidden = rewrite.total === 1;
    this.render(pass, rewrite);
    this.actions.light(rewrite);
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    // A button that is disabled would lose the focus.
    for (const each of this.buttons.children) each.setAttribute("aria-disabled", String(busy));
  }

  /** Goes on, from the last to the first and back. */
  private go(by: number): void {
    const total = this.shown?.total ?? 1;
    this.choose(((this.wanted - 1 + by + total) % total) + 1);
  }

  private choose(number: number): void {
    this.wanted = number;
    void this.ask(number);
  }

  private render(pass: Pass, { number, total, node, isExcluded, ...rewrite }: ShownRewrite): void {
    const count = `${grouped(number)} of ${grouped(total)}`;
    fill(this.words, [
      h("strong", `${isExcluded ? "Excluded from" : "Rewrite of"} ${pass.name}`),
      `: ${count}`,
    ]);
    const focused = [...this.buttons.children].indexOf(focusedIn(this.buttons) as Element);
    fill(this.buttons, [
      isExcluded
        ? this.button("Include it again", "Make this rewrite again", () =>
            this.actions.exclude(pass.signature, node, true),
          )
        : this.button("This one is wrong", "Exclude this rewrite and keep the others", () =>
            this.actions.exclude(pass.signature, node, false),
          ),
      (number < total || isExcluded) &&
        this.button(
          number === total ? "Apply all" : `Apply up to ${number}`,
          number === total
            ? "Make the rewrites after the last one again"
            : "Exclude the rewrites after this one",
          () => this.actions.applyUpTo(pass.signature, number),
        ),
      iconButton("close", "Close", () => this.actions.close(), "Esc"),
    ]);
    if (focused >= 0) (this.buttons.children[focused] as HTMLElement | undefined)?.focus();
    this.setBusy(this.busy);
    const { before, after, modules } = rewrite;
    fill(this.lines, [
      lines("Before", "−", before),
      isExcluded ? h("p.fxi-muted", "Left as it is.") : lines("After", "+", after, modules),
    ]);
  }

  private button(words: string, title: string, press: () => void): HTMLElement {
    return textButton(words, title, () => this.busy || press());
  }
}

function lines(title: string, sign: string, all: string[], more: string[] = []): Child {
  const signed = all.map((line) => h("span", { "data-sign": sign }, line));
  const rest = more.map((line) => h("span.fxi-muted", line));
  return h("pre", { role: "group", "aria-label": title }, [
    h("h3", title),
    all.length + more.length > 0 ? [...signed, ...rest] : "nothing",
  ]);
}

export interface NearMissActions {
  showCode(node: string): void;
  close(): void;
}

const LEGEND: Role[] = ["fits", "passed", "misfit"];

export class NearMissBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  private readonly body = h("div");
  readonly element = h("section.fxi-bench.fxi-grow.fxi-column", { "aria-label": "Near miss", hidden: true }, [
    h("div.fxi-bench-head.fxi-row.fxi-wrap", this.words, this.buttons),
    this.body,
  ]);
  private pass: Pass | null = null;

  constructor(private readonly actions: NearMissActions) {}

  get isOpen(): boolean {
    return this.pass !== null;
  }

  /** Shows what does not fit at a node. */
  show(pass: Pass, miss: ShownNearMiss): void {
    this.pass = pass;
    this.element.hidden = false;
    fill(this.words, h("strong", pass.name), `: ${miss.words}`);
    fill(this.buttons, [
      textButton("Show in code", "Show the line of the graph", () => this.actions.showCode(miss.node)),
      iconButton("close", "Close", () => this.actions.close(), "Esc"),
    ]);
    const roles = new Set(Object.values(miss.roles));
    fill(this.body, [
      h("ul.fxi-roles.fxi-small.fxi-row.fxi-wrap", { "aria-label": "Legend" }, [
        LEGEND.filter((role) => roles.has(role)).map((role) =>
          h(
            "li.fxi-row",
            h("span", { class: `fxi-role-sample fxi-role-${role}` }),
            capitalized(ROLE_WORDS[role]),
          ),
        ),
      ]),
    ]);
  }

  close(): void {
    this.pass = null;
    this.element.hidden = true;
  }
}
