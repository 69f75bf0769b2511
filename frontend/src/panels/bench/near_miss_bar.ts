/** A place at which a pass does not apply: how far it comes, and passes with a relaxed pattern. */

import { button, copyButton, fill, h, icon, iconButton, type Child } from "../../base/dom";
import { ROLE_WORDS } from "../../graph/highlights";
import type { Pass, Relaxation, Role, ShownNearMiss } from "../../base/wire";

export interface NearMissActions {
  showCode(node: string): void;
  add(signature: string, node: string, number: number): void;
  asTest(signature: string, node: string): void;
  close(): void;
}

const LEGEND: Role[] = ["fits", "passed", "misfit"];

export class NearMissBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div", { class: "fxi-preview-buttons" });
  private readonly body = h("div", { class: "fxi-relaxed" });
  readonly element = h(
    "section",
    { class: "fxi-bench", "aria-label": "Near miss", hidden: true },
    h("div", { class: "fxi-bench-head fxi-row fxi-wrap" }, this.words, this.buttons),
    this.body,
  );
  private pass: Pass | null = null;

  constructor(private readonly actions: NearMissActions) {}

  get isOpen(): boolean {
    return this.pass !== null;
  }

  /** Shows what does not fit at a node. */
  show(pass: Pass, node: string, miss: ShownNearMiss): void {
    this.pass = pass;
    this.element.hidden = false;
    fill(this.words, h("strong", {}, pass.name), `: ${miss.words}`);
    fill(
      this.buttons,
      button(
        {
          class: "fxi-button",
          title: "Show the line of the graph",
          onclick: () => this.actions.showCode(miss.node),
        },
        "Show in code",
      ),
      button(
        {
          class: "fxi-button",
          title: "Show and copy a test of this reason",
          onclick: () => this.actions.asTest(pass.signature, node),
        },
        "Copy as a test",
      ),
      iconButton("close", "Close", () => this.actions.close(), "Esc"),
    );
    const roles = new Set(Object.values(miss.roles));
    fill(
      this.body,
      h(
        "ul",
        { class: "fxi-roles fxi-row fxi-wrap", "aria-label": "Legend" },
        LEGEND.filter((role) => roles.has(role)).map((role) =>
          h(
            "li",
            {},
            h("span", { class: `fxi-role-sample fxi-role-${role}` }),
            capitalized(ROLE_WORDS[role]),
          ),
        ),
      ),
      miss.relaxed.length > 0 && h("h3", {}, "Relax the pattern"),
      miss.relaxed.map((one, number) => this.relaxation(pass, node, one, number)),
    );
  }

  close(): void {
    this.pass = null;
    this.element.hidden = true;
  }

  private relaxation(pass: Pass, node: string, { words, source }: Relaxation, number: number): Child {
    return h(
      "details",
      { class: "fxi-relaxation" },
      h("summary", {}, icon("chevron"), words),
      h(
        "div",
        { class: "fxi-row fxi-wrap" },
        button(
          {
            class: "fxi-button",
            title: "Offer this pass in the session; nothing is applied",
            onclick: () => this.actions.add(pass.signature, node, number),
          },
          "Add to the session",
        ),
        copyButton("Copy as Python", () => source),
      ),
      h("pre", { tabindex: 0, role: "group", "aria-label": "Python" }, source),
    );
  }
}

function capitalized(words: string): string {
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}
