/** The picture of a graph, with what is said of its boxes and edges. */

import type { Box, Picture } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type { Leaf } from "../graphs/hierarchy";
import type { Pane } from "../graphs/panes";
import type { View, VisibleEdge } from "../graphs/view";
import { placeBoxes } from "./boxes";
import { outline } from "./dot";
import type { Layouts } from "./layout";
import { writeSvg, type DrawnEdge } from "./svg";
import type { Arrangement } from "../../base/wire";

const FEW_LABELS = 3;

/** Draws what is visible of a graph. */
export async function pictureOf(
  data: Data,
  layouts: Layouts,
  { scene, view }: Pane,
  { arrangement, ...how }: Pick<Picture, "compared" | "preview" | "matches"> & { arrangement: Arrangement },
): Promise<Picture> {
  const { metrics } = data;
  const boxes = placeBoxes(view, data, metrics);
  const edges = new Map(
    view.edges.map((edge) => [`edge-${edge.source.id}-${edge.target.id}`, edgeOf(data, view, edge)]),
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
    ...how,
  };
}

function edgeOf(data: Data, view: View, edge: VisibleEdge): DrawnEdge {
  const { source, target, leaves } = edge;
  const shapes = [...new Set(leaves.map((leaf) => data.look(leaf.look)?.result).filter(Boolean))];
  const label = shapes.length <= FEW_LABELS ? shapes.join(", ") : `${leaves.length} values`;
  const drawn = { source: source.id, target: target.id, label, count: leaves.length };
  return view.isSaved(edge) ? { ...drawn, saved: sum(leaves.map(bytesOf)) } : drawn;
}

/** Returns the bytes of a value of known sizes. */
function bytesOf({ facts }: Leaf): number {
  return sum(
    (facts[0]?.values ?? []).map(({ shape, dtype }) => {
      const bits = dtype === "torch.bool" ? 8 : Number(dtype.match(/\d+/)?.[0] ?? 0);
      if (!/^\([\d, ]*\)$/.test(shape)) return 0;
      return ((shape.match(/\d+/g) ?? []).map(Number).reduce((a, b) => a * b, 1) * bits) / 8;
    }),
  );
}

function sum(numbers: number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}

/** Counts, for each pass and visible box, the nodes that the pass would change. */
export function matchesIn(data: Pick<Data, "matches">, view: View): Picture["matches"] {
  const counted: Picture["matches"] = {};
  for (const [signature, names] of Object.entries(data.matches)) {
    const boxes: Record<string, number> = (counted[signature] = {});
    for (const box of names.flatMap((name) => view.boxOf(name) ?? [])) boxes[box] = (boxes[box] ?? 0) + 1;
  }
  return counted;
}
