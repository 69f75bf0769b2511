/** A view in the DOT language; boxes have fixed sizes, so that words and fonts cannot move anything. */

import type { Arrangement } from "../../base/protocol";
import type { Legend, Painting } from "../../graph/saving/saved_picture";
import type { PlacedBox } from "./boxes";
import { Group } from "../graphs/hierarchy";
import type { View } from "../graphs/view";

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
const LOOKS = ["graph [bgcolor=transparent]", 'node [style="rounded,filled"]'];

/** A view that is written, alone or beside another. */
export interface Side {
  /** The heading, beside another. */
  name: string;
  view: View;
  boxes: Map<string, PlacedBox>;
  painting: Painting | null;
}

export function toDot(side: Side, edgeColour: string, arrangement: Arrangement): string {
  return written(arrangement, side.painting, (lines) => writeView(lines, side, edgeColour, ""));
}

/**
 * Writes views from left to right as one graph; the twin of `side_by_side` of `fxlab.drawing.rendering.dot`.
 */
export function sideBySide(sides: [Side, ...Side[]], edgeColour: string, arrangement: Arrangement): string {
  return written(arrangement, sides[0].painting, (lines) => {
    // Each side is laid out alone; they are put in a row in the order of their numbers, aligned at the top.
    lines.push(`graph [pack=40 packmode=array_tu${sides.length}]`);
    sides.forEach((side, i) => {
      lines.push(
        `subgraph "cluster_side-${i}" {`,
        `graph [label=<<B>${escaped(side.name) || " "}</B>> labelloc=t labeljust=c style=rounded color=transparent margin=18 sortv=${i + 1}]`,
      );
      writeView(lines, side, edgeColour, `side-${i}-`);
      lines.push("}");
    });
  });
}

function written(
  arrangement: Arrangement,
  painting: Painting | null,
  write: (lines: string[]) => void,
): string {
  const lines = ["digraph fxlab {", ...layout(arrangement), ...LOOKS];
  if (painting)
    lines.push(`graph [label=${legendLabel(painting.legend, painting.heat)} labelloc=b labeljust=l]`);
  write(lines);
  return [...lines, "}"].join("\n");
}

/** Writes boxes and edges, whose ids then begin with the prefix. */
function writeView(lines: string[], side: Side, edgeColour: string, prefix: string): void {
  writeChildren(lines, side.view.hierarchy.root, side, prefix);
  for (const edge of side.view.edges) {
    const [source, target] = [prefix + edge.source.id, prefix + edge.target.id];
    lines.push(
      `"${source}" -> "${target}" [id="edge-${source}-${target}" color="${edgeColour}"${lineAttributes(edge)}]`,
    );
  }
}

function writeChildren(lines: string[], group: Group, side: Side, prefix: string): void {
  const { view, boxes, painting } = side;
  for (const child of group.children) {
    const box = boxes.get(child.id)!;
    const { look, chips, id } = box;
    const paint = painting?.colours.get(id);
    const name = prefix + id;
    const [fill, border] = paint ? [paint.fill, paint.border] : look.colours;
    if (!(child instanceof Group && view.isCluster(child))) {
      const words = [
        ...chips.map((chip) => `(${chip.word[0]})`),
        look.title[0],
        ...look.lines.map(([text]) => text),
        ...(look.badge ? [look.badge[0]] : []),
      ];
      lines.push(
        `"${name}" [id="${name}" label=${quoted(words.join("\n"))} ${size(box)} fillcolor="${fill}" color="${border}"${paint?.dashed ? ' style="rounded,filled,dashed"' : ""}]`,
      );
      continue;
    }
    const title = [look.title[0], ...look.lines.map(([text]) => text)].join("  ");
    lines.push(
      `subgraph "cluster_${name}" {`,
      `graph [id="${name}" label=${room(box, title)} ${CLUSTERS} style="rounded,filled" fillcolor="${fill}" color="${border}"]`,
    );
    writeChildren(lines, child, side, prefix);
    lines.push("}");
  }
}

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

function legendLabel({ title, ends, kinds }: Legend, heat: [string, string]): string {
  const rows = [
    `<TR><TD COLSPAN="3" ALIGN="LEFT"><B>${escaped(title) || " "}</B></TD></TR>`,
    ends
      ? `<TR><TD>${escaped(ends[0])}</TD><TD BGCOLOR="${heat.join(":")}" WIDTH="140" HEIGHT="12"></TD><TD>${escaped(ends[1])}</TD></TR>`
      : "",
    ...kinds.map(
      ([{ fill }, words]) =>
        `<TR><TD BGCOLOR="${fill}" WIDTH="18"></TD><TD COLSPAN="2" ALIGN="LEFT">${escaped(words) || " "}</TD></TR>`,
    ),
  ];
  return `<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="1">${rows.join("")}</TABLE>>`;
}

/** A backslash would start an escape of Graphviz's own. */
function quoted(text: string): string {
  return `"${text.replace(/\\/g, "\\\\").replace(/"/g, '\\"').replace(/\n/g, "\\n")}"`;
}

export function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
