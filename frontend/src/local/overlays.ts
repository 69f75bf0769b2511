/** Overlays: a value for each box, worked out of those of its nodes. */

import type { Cell, Overlay } from "../base/protocol";
import type { GraphData, SessionData } from "./data";
import { Group } from "./hierarchy";
import type { Pane } from "./panes";

const MIXED = "mixed";

/** Returns an overlay of a stage for the boxes that are visible; null if there is none of that name. */
export function overlayOn(
  data: SessionData,
  { overlays, nodes }: GraphData,
  { scene, view }: Pane,
  wanted: string,
): Overlay | null {
  const chosen = overlays.find(({ name }) => name === wanted);
  if (!chosen) return null;
  const { combine, numeric } = chosen;
  const valueOf = new Map(nodes.map((place, i) => [data.nodes[place]!.name!, chosen.values[i] ?? null]));
  const { leaves } = scene.hierarchy;
  const values: Record<string, Cell> = {};
  for (const item of [...view.clusters, ...view.boxes]) {
    const drawn = item instanceof Group ? leaves.slice(item.start, item.stop) : [item];
    const value = combined(
      drawn.flatMap((leaf) => leaf.names.map((name) => valueOf.get(name) ?? null)),
      combine,
      numeric,
    );
    if (value !== null) values[item.id] = value;
  }
  return { ...chosen, values, total: combined(chosen.values, combine, numeric) };
}

/** Returns the value of a box that draws several nodes; the twin of `fxlab.overlays.Overlay.of`. */
function combined(values: Cell[], how: "sum" | "max", numeric: boolean): Cell {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return null;
  if (!numeric) return new Set(known.map(String)).size === 1 ? known[0]! : MIXED;
  const numbers = known.map((value) =>
    value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value),
  );
  const result =
    how === "sum" ? numbers.reduce((sum, value) => sum + value, 0) : numbers.reduce((a, b) => Math.max(a, b));
  return Number.isFinite(result) ? result : String(result).replace("Infinity", "inf").toLowerCase();
}
