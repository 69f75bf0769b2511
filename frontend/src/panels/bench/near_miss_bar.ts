/** A place at which a pass does not apply: and how far it comes. */

import { fill, h, iconButton, textButton } from "../../base/dom";
import { ROLE_WORDS } from "../../graph/highlights";
import type { Pass, Role, ShownNearMiss } from "../../base/wire";
import { capitalized } from "../../base/format";

export interface NearMissActions {
  showCode(node: string): void;
  close(): void;
}

const LEGEND: Role[] = ["fits", "passed", "misfit"];

export class NearMissBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  private readonly body = h("div");
  readonly element = h("section.fxi-bench", { "aria-label": "Near miss", hidden: true }, [
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
