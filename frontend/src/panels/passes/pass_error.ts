/** What a pass has raised, at its switch: the line of its author, and the whole traceback on request. */

import { foldable, h, icon, nodeLink } from "../../base/dom";
import { counted } from "../../base/format";
import type { PassError } from "../../base/wire";

export class PassErrors {
  /** The keys of the passes whose traceback is shown; the cards are drawn anew whenever something changes. */
  private readonly opened = new Set<string>();

  /** `jump` goes to a node of a stage. */
  constructor(private readonly jump: (node: string, stage: number) => void) {}

  of(key: string, error: PassError | null): HTMLElement | null {
    if (!error) {
      this.opened.delete(key);
      return null;
    }
    const { text, place, file, code, node, stage } = error;
    return h("div.fxi-card-error", [
      icon("alert"),
      h("div.fxi-grow", [
        h("p.fxi-error-words.fxi-scroll", { tabindex: 0 }, text),
        place && h("p.fxi-error-line.fxi-wrap", { title: file }, h("span", place), code && h("code", code)),
        node && h("p", ["At the node ", nodeLink(node, () => this.jump(node, stage))]),
        error.traceback.length > 0 && this.traceback(key, error),
      ]),
    ]);
  }

  private traceback(key: string, { traceback }: PassError): HTMLElement {
    return h("details.fxi-traceback", { ...foldable(this.opened, key) }, [
      h("summary", { "data-focus": `traceback-${key}` }, icon("chevron"), "Show traceback"),
      traceback.map(({ hides, text }) =>
        hides === 0
          ? h("pre.fxi-frames", { tabindex: 0 }, text)
          : h("details.fxi-hidden-frames", [
              h(
                "summary.fxi-small.fxi-muted",
                icon("chevron"),
                `${counted(hides, "frame")} of fxlab, torch or Python`,
              ),
              h("pre.fxi-frames", { tabindex: 0 }, text),
            ]),
      ),
    ]);
  }
}
