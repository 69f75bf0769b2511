/** The picture of a graph, with what is said of its boxes and edges. */

import type { Box, Picture } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type { Pane } from "../graphs/panes";
import type { View, VisibleEdge } from "../graphs/view";
import { placeBoxes } from "./boxes";
import { outline } from "./dot";
import type { Layouts } from "./layout";
import type { LineStyles } from "./lines";
import { writeSvg, type DrawnEdge } from "./svg";
import type { Arrangement } from "../../base/wire";
import { countsOf } from "../../base/format";

const FEW_LABELS = 3;

/** Draws what is visible of a graph. */
export async function pictureOf(
  data: Data,
  layouts: Layouts,
  { scene, view }: Pane,
  {
    arrangement,
    lines,
    ...how
  }: Pick<Picture, "compared" | "preview" | "matches"> & { arrangement: Arrangement; lines: LineStyles },
): Promise<Picture> {
  const { metrics } = data;
  const boxes = placeBoxes(view, data);
  const edges = new Map(
    view.edges.map((edge) => [`edge-${edge.source.id}-${edge.target.id}`, edgeOf(data, view, edge, lines)]),
  );
  const dot = outline(view, boxes, arrangement);
  const laidOut = await layouts.layOut(dot, data.layouts[dot]);
  const headings = view.hierarchy.data.columns?.headings ?? [];
  const drawn = writeSvg(laidOut, boxes, edges, metrics, arrangement.shapes, headings);
  const infos: [string, Box][] = [...boxes.values()].flatMap(
    ({ id, box, chips }) =>
      [[id, box], ...chips.map((chip): [string, Box] => [chip.id, chip.box])] as [string, Box][],
  );
  return {
    ...drawn,
    boxes: Object.fromEntries(infos),
    edges: Object.fromEntries(edges),
    signatures: scene.signatures,
    numbers: scene.numbers,
    lines: lines.legend,
    ...how,
  };
}

function edgeOf(data: Data, view: View, edge: VisibleEdge, lines: LineStyles): DrawnEdge {
  const { source, target, leaves } = edge;
  const shapes = [...new Set(leaves.map((leaf) => data.look(leaf.look)?.result).filter(Boolean))];
  const label = shapes.length <= FEW_LABELS ? shapes.join(", ") : `${leaves.length} values`;
  return { source: source.id, target: target.id, label, count: leaves.length, ...lines.look(view, edge) };
}

/** Counts, for each pass and visible box, the nodes that the pass would change. */
export function matchesIn(data: Pick<Data, "matches">, view: View): Picture["matches"] {
  const counted: Picture["matches"] = {};
  for (const [signature, names] of Object.entries(data.matches)) {
    counted[signature] = countsOf(names.flatMap((name) => view.boxOf(name) ?? []));
  }
  return counted;
}
