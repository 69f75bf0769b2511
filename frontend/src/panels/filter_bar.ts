/** Says which nodes are lit up in the graph, and lets one go back to all. */

import { fill, h, iconButton } from "../base/dom";
import { counted, grouped } from "../base/format";
import type { NodesFound } from "../base/protocol";

export class FilterBar {
  private readonly words = h("p", { role: "status" });
  readonly element = h("div.fxi-found-bar.fxi-row", { role: "group", "aria-label": "Filter", hidden: true }, [
    this.words,
    iconButton("close", "Clear filter", () => this.end(), "Esc"),
  ]);
  private found: NodesFound | null = null;

  constructor(private readonly end: () => void) {}

  /** What is lit up. */
  get shown(): NodesFound | null {
    return this.found;
  }

  show(found: NodesFound | null): void {
    this.found = found;
    this.element.hidden = found === null;
    if (!found) return fill(this.words);
    const others = found.boxes.slice(1);
    const beside = others.flatMap((boxes) => Object.values(boxes)).reduce((all, count) => all + count, 0);
    const query = h("code", { title: found.query }, found.query);
    if (found.message) fill(this.words, query, `: ${found.message}`);
    else
      fill(this.words, [
        h("strong", counted(found.count, "node")),
        found.count === 1 ? " matches " : " match ",
        query,
        beside > 0 && `, ${grouped(beside)} in the other graph${others.length > 1 ? "s" : ""}`,
      ]);
  }
}
