/** A place at which a pass does not apply: how far it comes, and passes with a relaxed pattern. */

import { type Child, copyButton, fill, h, icon, iconButton, textBlock, textButton } from "../../base/dom";
import { ROLE_WORDS } from "../../graph/highlights";
import type { Pass, Relaxation, Role, ShownNearMiss } from "../../base/wire";
import { capitalized } from "../../base/format";

export interface NearMissActions {
  showCode(node: string): void;
  add(signature: string, node: string, number: number): void;
  asTest(signature: string, node: string): void;
  close(): void;
}

const LEGEND: Role[] = ["fits", "passed", "misfit"];

export class NearMissBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  private readonly body = h("div.fxi-relaxed");
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
  show(pass: Pass, node: string, miss: ShownNearMiss): void {
    this.pass = pass;
    this.element.hidden = false;
    fill(this.words, h("strong", pass.name), `: ${miss.words}`);
    fill(this.buttons, [
      textButton("Show in code", "Show the line of the graph", () => this.actions.showCode(miss.node)),
      textButton("Copy as a test", "Show and copy a test of this reason", () =>
        this.actions.asTest(pass.signature, node),
      ),
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
      miss.relaxed.length > 0 && h("h3", "Relax the pattern"),
      miss.relaxed.map((one, number) => this.relaxation(pass, node, one, number)),
    ]);
  }

  close(): void {
    this.pass = null;
    this.element.hidden = true;
  }

  private relaxation(pass: Pass, node: string, { words, source }: Relaxation, number: number): Child {
    return h("details.fxi-relaxation", [
      h("summary", icon("chevron"), words),
      h("div.fxi-row.fxi-wrap", [
        textButton("Add to the session", "Offer this pass in the session; nothing is applied", () =>
          this.actions.add(pass.signature, node, number),
        ),
        copyButton("Copy as Python", () => source),
      ]),
      textBlock("Python", source),
    ]);
  }
}

export class PythonText {
  readonly element = h("section.fxi-bench", { hidden: true });

  show(title: string, text: string): void {
    const copy = copyButton(`Copy ${title.toLowerCase()}`, () => text);
    this.element.hidden = false;
    this.element.setAttribute("aria-label", title);
    fill(this.element, [h("div.fxi-python", [h("h3.fxi-row", title, copy), textBlock("Python", text)])]);
    copy.click();
  }

  close(): void {
    this.element.hidden = true;
    fill(this.element);
  }
}
