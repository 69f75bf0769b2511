/** What a pass would change or has changed, and why it leaves other candidates alone. */

import { h, icon, iconButton } from "../base/dom";
import { counted } from "../base/format";
import type { Pass, Reason } from "../base/protocol";

export interface SummaryActions {
  limit(signature: string, node: string, again: boolean): void;
  jump(node: string): void;
}

export class PassSummaries {
  /** The keys of the passes whose reasons are shown. */
  private readonly expanded = new Set<string>();

  constructor(private readonly actions: SummaryActions) {}

  of(pass: Pass, busy: boolean, fixed: boolean): HTMLElement {
    if (pass.note) return h("p", { class: "fxi-card-note" }, pass.note);
    const changed = pass.on
      ? h("span", { class: "fxi-matched" }, `${counted(pass.changed, "node")} changed`)
      : null;
    const rounds = pass.preserves
      ? null
      : h("span", { title: "This pass may change the results" }, "may change outputs");
    if (pass.matched === null || pass.reasons.length === 0) {
      const words = pass.matched === null ? "Lists its changes once it is on" : "No candidates in this graph";
      return h("p", { class: "fxi-card-note fxi-counts" }, changed ?? h("span", {}, words), rounds);
    }
    const words = h(
      "span",
      { class: "fxi-counts" },
      changed ??
        (pass.matched || pass.excluded
          ? h("span", { class: "fxi-matched" }, `${counted(pass.matched, "node")} to change`)
          : h("span", {}, `Refused: ${pass.reasons[0]!.reason || "no reason given"}`)),
      excludedWords(pass),
      pass.refused ? h("span", {}, `${pass.refused.toLocaleString("en-US")} refused`) : null,
      rounds,
    );
    const details = h(
      "details",
      {
        class: "fxi-reasons",
        open: this.expanded.has(pass.key),
        ontoggle: (event: Event) => {
          if ((event.target as HTMLDetailsElement).open) this.expanded.add(pass.key);
          else this.expanded.delete(pass.key);
        },
      },
      h("summary", { "data-focus": `why-${pass.key}` }, icon("chevron"), words),
      pass.reasons.map((reason) => this.reason(pass, reason, busy, fixed)),
    );
    return details;
  }

  private reason(
    pass: Pass,
    { reason, kind, count, nodes }: Reason,
    busy: boolean,
    fixed: boolean,
  ): HTMLElement {
    const rest = count - nodes.length;
    return h(
      "div",
      { class: kind === "matched" ? "fxi-reason fxi-reason-match" : "fxi-reason" },
      h(
        "div",
        { class: "fxi-reason-words" },
        h("b", {}, `${count.toLocaleString("en-US")} × `),
        reason || (kind === "matched" ? "will be changed" : "refused"),
      ),
      h(
        "div",
        { class: "fxi-reason-nodes" },
        nodes.map((name) =>
          h(
            "div",
            { class: "fxi-reason-node" },
            h(
              "button",
              { type: "button", class: "fxi-link", title: name, onclick: () => this.actions.jump(name) },
              name,
            ),
            pass.canExclude &&
              kind !== "refused" &&
              !fixed &&
              this.limitButton(pass, name, kind === "excluded", busy),
          ),
        ),
        rest > 0 && h("span", { class: "fxi-muted" }, `and ${rest.toLocaleString("en-US")} more`),
      ),
    );
  }

  private limitButton(pass: Pass, node: string, again: boolean, busy: boolean): HTMLElement {
    const label = again ? `Include ${node}` : pass.on ? `Exclude the rewrite of ${node}` : `Exclude ${node}`;
    const button = iconButton(again ? "redo" : pass.on ? "undo" : "close", label, () =>
      this.actions.limit(pass.signature, node, again),
    );
    button.dataset["focus"] = `limit-${pass.key}-${node}`;
    button.disabled = busy;
    return button;
  }
}

/** Returns how many of its rewrites a pass makes, if it leaves some out. */
function excludedWords({ on, rewrites, excluded }: Pass): HTMLElement | null {
  if (!excluded) return null;
  const words =
    on && rewrites !== null
      ? `${rewrites.toLocaleString("en-US")} of ${counted(rewrites + excluded, "rewrite")}`
      : `${excluded.toLocaleString("en-US")} excluded`;
  return h("span", { class: "fxi-left-out" }, words);
}
