/** The outline of a view in the DOT language; boxes have fixed sizes, so that words and fonts cannot move anything. */

import type { PlacedBox } from "./boxes";
import { Group } from "../graphs/hierarchy";
import type { View } from "../graphs/view";
import type { Arrangement } from "../../base/wire";

const POINTS = 72;
/** What decides where things lie; the twin of `Arrangement` of `fxlab.drawing.rendering.dot`. */
function layout({ direction, shapes }: Arrangement): string[] {
  const isDown = direction === "down";
  const ranksep = shapes ? (isDown ? "0.45" : "1.1") : isDown ? "0.27" : "0.4";
  return [
    `graph [rankdir="${isDown ? "TB" : "LR"}" nodesep="0.28" ranksep="${ranksep}" splines="true" nslimit="2" nslimit1="1" maxiter="8" mclimit="0.6" pad="0.08"]`,
    'node [shape="box" fixedsize="true" margin="0" penwidth="1"]',
    'edge [arrowsize="0.55" penwidth="1.1"]',
  ];
}
const CLUSTERS = 'labelloc="t" labeljust="l" margin="14"';
/**
 * Writes what decides where boxes and lines lie, and no words or colours: it is laid out much faster. The twin of
 * `outline` of `fxlab.drawing.rendering.dot`: a report holds the layout of its first picture under the text that that writes.
 */
export function outline(view: View, boxes: Map<string, PlacedBox>, arrangement: Arrangement): string {
  const lines = ["digraph {", ...layout(arrangement), 'node [label=""]'];
  outlineChildren(lines, view.hierarchy.root, view, boxes);
  for (const edge of view.edges) {
    const [source, target] = [edge.source.id, edge.target.id];
    lines.push(`"${source}" -> "${target}" [id="edge-${source}-${target}"${lineAttributes(edge)}]`);
  }
  return [...lines, "}"].join("\n");
}

function outlineChildren(lines: string[], group: Group, view: View, boxes: Map<string, PlacedBox>): void {
  for (const child of group.children) {
    const box = boxes.get(child.id)!;
    if (!(child instanceof Group && view.isCluster(child))) {
      lines.push(`"${box.id}" [id="${box.id}" ${size(box)}]`);
      continue;
    }
    lines.push(`subgraph "cluster_${box.id}" {`, `graph [id="${box.id}" ${CLUSTERS} label=${room(box, "")}]`);
    outlineChildren(lines, child, view, boxes);
    lines.push("}");
  }
}

function size({ width, height }: PlacedBox): string {
  return `width="${(width / POINTS).toFixed(4)}" height="${(height / POINTS).toFixed(4)}"`;
}

/**
 * The label of a cluster, of a fixed size: the room for the title must not depend on the fonts of the
 * machine.
 */
function room({ width, height }: PlacedBox, title: string): string {
  return `<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="${Math.round(width)}" HEIGHT="${Math.round(height)}"><TR><TD ALIGN="LEFT">${escaped(title) || " "}</TD></TR></TABLE>>`;
}

function lineAttributes({ leaves, isMain }: View["edges"][number]): string {
  return (leaves.length > 1 ? ' penwidth="1.8"' : "") + (isMain ? ' weight="6"' : "");
}

export function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
