/** Says that what is shown is a preview of a pass, which can be applied or left. */

import { fill, h } from "../../base/dom";
import type { Preview } from "../../base/protocol";

export interface PreviewActions {
  apply(signature: string): void;
  cancel(): void;
}

export class PreviewBar {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons");
  readonly element = h(
    "div.fxi-preview.fxi-row.fxi-wrap",
    { role: "group", "aria-label": "Preview", hidden: true },
    this.words,
    this.buttons,
  );
  private shown: Preview | null = null;
  private busy = false;

  constructor(private readonly actions: PreviewActions) {}

  get preview(): Preview | null {
    return this.shown;
  }

  show(preview: Preview | null): void {
    this.shown = preview;
    this.element.hidden = preview === null;
    if (!preview) return fill(this.words);
    fill(this.words, h("strong", `Preview of ${preview.name}`), `: ${preview.text}, nothing is applied`);
    fill(this.buttons, [
      h(
        "button.fxi-button.fxi-primary",
        { onclick: () => this.busy || this.actions.apply(preview.signature) },
        "Apply",
      ),
      h("button.fxi-button", { title: "Cancel (Esc)", onclick: () => this.busy || this.actions.cancel() }, [
        "Cancel",
      ]),
    ]);
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    // A button that is disabled would lose the focus.
    for (const button of this.buttons.children) button.setAttribute("aria-disabled", String(busy));
  }
}
