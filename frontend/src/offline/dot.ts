/** A view in the DOT language; boxes have fixed sizes, so that words and fonts cannot move anything. */

import type { PlacedBox } from "./boxes";
import { Group } from "./hierarchy";
import type { View } from "./view";

const POINTS = 72;
const SETTINGS = [
  "graph [rankdir=TB nodesep=0.28 ranksep=0.36 splines=true nslimit=1 nslimit1=1 maxiter=8 mclimit=0.6 pad=0.15 bgcolor=transparent]",
  'node [shape=box style="rounded,filled" fixedsize=true margin=0 penwidth=1]',
  "edge [arrowsize=0.55 penwidth=1.1]",
];

export function toDot(view: View, boxes: Map<string, PlacedBox>, edgeColour: string): string {
  const lines = ["digraph fxlab {", ...SETTINGS];
  writeChildren(lines, view.hierarchy.root, view, boxes);
  for (const { source, target, leaves } of view.edges) {
    const width = leaves.length > 1 ? " penwidth=1.8" : "";
    lines.push(`"${source.id}" -> "${target.id}" [id="edge-${source.id}-${target.id}" color="${edgeColour}"${width}]`);
  }
  return [...lines, "}"].join("\n");
}

function writeChildren(lines: string[], group: Group, view: View, boxes: Map<string, PlacedBox>): void {
  for (const child of group.children) {
    const { look, width, height, chips, id } = boxes.get(child.id)!;
    const [fill, border] = look.colours;
    if (!(child instanceof Group && view.isCluster(child))) {
      const words = [...chips.map((chip) => `(${chip.word[0]})`), look.title[0], ...look.lines.map(([text]) => text), ...(look.badge ? [look.badge[0]] : [])];
      lines.push(
        `"${id}" [id="${id}" label=${quoted(words.join("\n"))} width=${(width / POINTS).toFixed(4)} height=${(height / POINTS).toFixed(4)} fillcolor="${fill}" color="${border}"]`,
      );
      continue;
    }
    // A fixed size: the room for the title must not depend on the fonts of the machine.
    const title = [look.title[0], ...look.lines.map(([text]) => text)].join("  ");
    const label = `<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="${Math.round(width)}" HEIGHT="${Math.round(height)}"><TR><TD ALIGN="LEFT">${escaped(title) || " "}</TD></TR></TABLE>>`;
    lines.push(`subgraph "cluster_${id}" {`, `graph [id="${id}" label=${label} labeljust=l style="rounded,filled" margin=14 fillcolor="${fill}" color="${border}"]`);
    writeChildren(lines, child, view, boxes);
    lines.push("}");
  }
}

/** A backslash would start an escape of Graphviz's own. */
function quoted(text: string): string {
  return `"${text.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n")}"`;
}

export function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
