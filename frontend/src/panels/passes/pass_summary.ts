/** What a pass would change or has changed, and why it leaves other candidates alone. */

import { type Attributes, foldable, h, icon, iconButton, nodeLink } from "../../base/dom";
import { capitalized, grouped } from "../../base/format";
import { elidedList, shortNames } from "../../base/names";
import type { Pass, Reason } from "../../base/wire";

const ENDS = { first: 6, last: 2 };
const REASON_ENDS = { first: 4, last: 1 };

export interface SummaryActions {
  limit(signature: string, node: string, again: boolean): void;
  jump(node: string): void;
  /** Shows why a pass does not apply at a node. */
  whyNot(pass: Pass, node: string): void;
}

/** Whether the kernel is busy, and whether there is none. */
interface Standing {
  busy: boolean;
  fixed: boolean;
}

export class PassSummaries {
  /** The keys of the passes whose reasons are shown. */
  private readonly expanded = new Set<string>();

  constructor(private readonly actions: SummaryActions) {}

  /** What a closed card says in one line, and an open one in full. */
  of(pass: Pass, how: Standing, isOpen: boolean): HTMLElement {
    if (pass.note) return h("p.fxi-card-note.fxi-muted", { title: pass.note }, pass.note);
    const done = isOpen ? capitalized(pass.changes) : inShort(pass.changes);
    const changes = pass.on ? h("span.fxi-matched", { title: pass.changes }, done) : null;
    const mayDiffer = pass.preserves
      ? null
      : h("span.fxi-may-differ", { title: "This pass may change the results" }, "may change outputs");
    if (pass.isLooking || pass.matched === null || pass.reasons.length === 0) {
      const words = pass.isLooking
        ? "Looking for candidates …"
        : pass.matched === null
          ? "Lists its changes once it is on"
          : "No candidates in this graph";
      return h("p.fxi-card-note.fxi-counts.fxi-muted", mayDiffer, changes ?? h("span", words));
    }
    const words = h("span.fxi-counts", [
      mayDiffer,
      changes ??
        (pass.matched || pass.excluded
          ? h("span.fxi-matched", { title: pass.candidates }, [
              isOpen ? pass.candidates : inShort(pass.candidates),
            ])
          : h("span", `Refused: ${pass.reasons[0]!.reason || "no reason given"}`)),
      pass.excluded > 0 && h("span.fxi-left-out", `${grouped(pass.excluded)} excluded`),
      pass.refused ? h("span", `${grouped(pass.refused)} refused`) : null,
    ]);
    // Cards are drawn with every change, and few are ever opened.
    const unfold = (): void => {
      if (details.children.length === 1)
        details.append(
          elidedList(
            pass.reasons.map((reason) => h("li", this.reason(pass, reason, how))),
            REASON_ENDS,
          ),
        );
    };
    const summary = { "data-focus": `why-${pass.key}`, onclick: unfold };
    const details = h("details.fxi-reasons", { ...foldable(this.expanded, pass.key) }, [
      h("summary", summary, icon("chevron"), words),
    ]);
    details.addEventListener("toggle", unfold);
    if (details.open) unfold();
    return details;
  }

  private reason(pass: Pass, { reason, kind, what, count, nodes }: Reason, how: Standing): HTMLElement {
    const rest = count - nodes.length;
    const short = shortNames(nodes);
    return h("div", { class: kind === "matched" ? "fxi-reason fxi-reason-match" : "fxi-reason" }, [
      h("div.fxi-reason-words", { title: reason }, [
        h("b", `${what}: `),
        withShortNames(reason, nodes, short) || (kind === "matched" ? "will be changed" : "refused"),
      ]),
      h("div.fxi-reason-nodes.fxi-column", [
        elidedList(
          nodes.map((name, i) => this.node(pass, name, short[i]!, kind, how)),
          ENDS,
        ),
        rest > 0 && h("span.fxi-muted", `and ${grouped(rest)} more`),
      ]),
    ]);
  }

  private node(pass: Pass, name: string, shown: string, kind: Reason["kind"], how: Standing): HTMLElement {
    const { busy, fixed } = how;
    return h("li.fxi-reason-node.fxi-row", [
      nodeLink(name, () => this.actions.jump(name), shown),
      pass.canExclude &&
        kind !== "refused" &&
        !fixed &&
        this.limitButton(pass, name, kind === "excluded", busy),
      kind === "refused" &&
        !fixed &&
        whyNotButton(name, () => this.actions.whyNot(pass, name), {
          "data-focus": `why-not-${pass.key}-${name}`,
          disabled: busy,
        }),
    ]);
  }

  private limitButton(pass: Pass, node: string, again: boolean, busy: boolean): HTMLElement {
    const label = again ? `Include ${node}` : pass.on ? `Exclude the rewrite of ${node}` : `Exclude ${node}`;
    const sign = again ? "redo" : pass.on ? "undo" : "close";
    return iconButton(sign, label, () => this.actions.limit(pass.signature, node, again), "", {
      ...{ "data-focus": `limit-${pass.key}-${node}`, disabled: busy },
    });
  }
}

/** Returns a button that shows what fits at a node, and what does not. */
export function whyNotButton(node: string, press: () => void, more: Attributes = {}): HTMLButtonElement {
  const label = `Show what does not fit at ${node}`;
  return iconButton("target", label, press, "", { class: "fxi-needs-kernel", ...more });
}

/** Returns a reason with the names of its nodes as short as they are listed below it. */
function withShortNames(reason: string, names: string[], short: string[]): string {
  const shortOf = new Map(names.map((name, i) => [name, short[i]!]));
  return reason.replace(/[\w.]+/g, (word) => shortOf.get(word) ?? word);
}

/** "64 rewrites: 160 linears become 64" as one number: "160 linears → 64". */
function inShort(words: string): string {
  const what = words.replace(/^[\d,]+ (?:rewrite|candidate)s?: /, "");
  return capitalized(what.replaceAll(" become ", " → "));
}
