/** The outline of a view in the DOT language; boxes have fixed sizes, so that words and fonts cannot move anything. */

import type { PlacedBox } from "./boxes";
import { BACK, BELOW, Group, type Leaf } from "../graphs/hierarchy";
import type { View, VisibleEdge } from "../graphs/view";
import type { Arrangement, Word } from "../../base/wire";

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
const COLUMNS = 'labelloc="t" labeljust="l" margin="14"';
const COLUMN_HEIGHT = 18;
const KEPT = ' arrowhead="none"';
const PARTS = 'color="transparent" margin="0"';
const CLUSTERS = 'labelloc="t" labeljust="l" margin="14"';
/**
 * Writes what decides where boxes and lines lie, and no words or colours: it is laid out much faster. The twin of
 * `outline` of `fxlab.drawing.rendering.dot`: a report holds the layout of its first picture under the text that that writes.
 */
export function outline(view: View, boxes: Map<string, PlacedBox>, arrangement: Arrangement): string {
  const lines = ["digraph {", ...layout(arrangement), 'node [label=""]'];
  const { root, data } = view.hierarchy;
  if (data.columns) outlineColumns(lines, view, boxes, data.columns.headings);
  else {
    outlineParts(lines, root.children, view, boxes);
    for (const [upper, lower] of view.lonely) lines.push(above(upper, lower));
    for (const edge of view.edges) lines.push(line(edge, lineAttributes(edge)));
  }
  return [...lines, "}"].join("\n");
}

/** Writes the columns of a large picture, which are laid out one by one and put in rows. */
function outlineParts(
  lines: string[],
  children: (Group | Leaf)[],
  view: View,
  boxes: Map<string, PlacedBox>,
): void {
  if (view.parts.length === 1) return outlineChildren(lines, children, view, boxes);
  lines.push('graph [pack="40" packmode="array_tu16"]');
  view.parts.forEach((_, part) => {
    lines.push(`subgraph "cluster_part-${part}" {`, `graph [${PARTS} sortv="${part + 1}"]`);
    outlineChildren(lines, children, view, boxes, part);
    lines.push("}");
  });
}

function above(upper: Group | Leaf, lower: Group | Leaf): string {
  return `"${upper.id}" -> "${lower.id}" [style="invis"]`;
}

/** Writes the columns of a training step: the backward pass leads up, beside the forward pass. */
function outlineColumns(
  lines: string[],
  view: View,
  boxes: Map<string, PlacedBox>,
  headings: readonly Word[],
): void {
  const { hierarchy } = view;
  lines.push('graph [newrank="true"]');
  headings.forEach(([, width], number) => {
    const column = hierarchy.column(number);
    if (column.length === 0) return;
    const name = `column-${number}`;
    const label = room({ width: Math.ceil(width), height: COLUMN_HEIGHT }, "");
    lines.push(`subgraph "cluster_${name}" {`, `graph [id="${name}" ${COLUMNS} label=${label}]`);
    outlineChildren(lines, column, view, boxes);
    lines.push("}");
  });
  outlineChildren(lines, hierarchy.column(BELOW), view, boxes);
  for (const [left, right] of view.level)
    lines.push(`{rank="same" "${left.id}" -> "${right.id}" [style="invis" minlen="4"]}`);
  for (const [upper, lower] of view.above) lines.push(above(upper, lower));
  const turn = view.boxes.find((box) => view.columnOf(box) === BACK);
  for (const edge of view.edges) {
    const [source, target] = [view.columnOf(edge.source), view.columnOf(edge.target)];
    if (source === target || target === BELOW)
      lines.push(line(edge, (source === BACK ? ' dir="back"' : "") + lineAttributes(edge), source === BACK));
    else {
      const isKept = view.isSaved(edge) && edge.target !== turn;
      lines.push(line(edge, ` constraint="false"${isKept ? KEPT : ""}`));
    }
  }
}

function line({ source, target }: VisibleEdge, attributes: string, isTurned = false): string {
  const [tail, head] = isTurned ? [target, source] : [source, target];
  return `"${tail.id}" -> "${head.id}" [id="edge-${source.id}-${target.id}"${attributes}]`;
}

function outlineChildren(
  lines: string[],
  children: (Group | Leaf)[],
  view: View,
  boxes: Map<string, PlacedBox>,
  part = 0,
): void {
  for (const child of children) {
    if (!(child instanceof Group && view.isCluster(child))) {
      if (view.partOf(child) === part)
        lines.push(`"${child.id}" [id="${child.id}" ${size(boxes.get(child.id)!)}]`);
      continue;
    }
    const id = view.pieces(child).get(part);
    if (!id) continue;
    lines.push(
      `subgraph "cluster_${id}" {`,
      `graph [id="${id}" ${CLUSTERS} label=${room(boxes.get(id)!, "")}]`,
    );
    outlineChildren(lines, child.children, view, boxes, part);
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
function room({ width, height }: Pick<PlacedBox, "width" | "height">, title: string): string {
  return `<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0" FIXEDSIZE="TRUE" WIDTH="${Math.round(width)}" HEIGHT="${Math.round(height)}"><TR><TD ALIGN="LEFT">${escaped(title) || " "}</TD></TR></TABLE>>`;
}

function lineAttributes({ leaves, isMain }: View["edges"][number]): string {
  return (leaves.length > 1 ? ' penwidth="1.8"' : "") + (isMain ? ' weight="6"' : "");
}

export function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
