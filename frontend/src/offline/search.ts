/** Looking for nodes and groups; the twin of `fxlab.screen.node_search`. */

import type { SearchResult } from "../protocol";
import type { BareDetails } from "./data";
import type { Hierarchy } from "./hierarchy";

const MOST_RESULTS = 60;

interface Entry {
  text: string;
  result: SearchResult;
}

export class Search {
  private readonly entries: Entry[] = [];

  constructor(hierarchy: Hierarchy, nodes: BareDetails[], groups: BareDetails[]) {
    for (const { data } of hierarchy.groups.values()) {
      if (!data.path) continue;
      const className = field(groups[data.details]!, "Class");
      const text = [className, `${data.count} nodes`].filter(Boolean).join(" · ");
      this.entries.push({ text: `${data.path} ${className} group`.toLowerCase(), result: { kind: "group", name: data.path, text } });
    }
    for (const details of nodes) this.entries.push(entryOf(details));
  }

  /** Names that start with the query come first, then names that contain it, then everything else. */
  find(query: string): { results: SearchResult[]; total: number } {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return { results: [], total: 0 };
    const found = this.entries
      .filter(({ text }) => words.every((word) => text.includes(word)))
      .map(({ result }) => ({ result, rank: rank(result.name.toLowerCase(), words) }))
      .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
    return { results: found.slice(0, MOST_RESULTS).map(({ result }) => result), total: found.length };
  }
}

function rank(name: string, words: string[]): [number, number] {
  if (name === words.join(" ")) return [0, 0];
  if (name.startsWith(words[0]!)) return [1, name.length];
  return words.every((word) => name.includes(word)) ? [2, name.length] : [3, 0];
}

function entryOf(details: BareDetails): Entry {
  const name = details.name ?? details.title;
  const [target, module, className] = ["Target", "Module", "Class"].map((label) => field(details, label)) as [string, string, string];
  const results = (details.values ?? []).map(({ shape, dtype }) => `${shape} ${dtype}`.trim()).join(", ");
  const shown = [target === name ? details.subtitle : target, results, module === target ? "" : module].filter(Boolean).join(" · ");
  const sizes = (details.values ?? []).map(({ shape }) => shape.replace(/[(),]/g, "").replace(/ /g, "×")).join(" ");
  const text = [name, details.subtitle, target, module, className, results, sizes, details.marks.length > 0 ? "changed" : ""];
  return { text: text.join(" ").toLowerCase(), result: { kind: "node", name, text: shown.slice(0, 300) } };
}

function field(details: BareDetails, label: string): string {
  return details.fields.find((entry) => entry.label === label)?.value ?? "";
}
