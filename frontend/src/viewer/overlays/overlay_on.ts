/** The values of an overlay on the boxes that are visible. */

import type { Overlay } from "../../base/protocol";
import type { Cell, OverlayData } from "../../base/wire";
import { Group } from "../graphs/hierarchy";
import type { Pane } from "../graphs/panes";
import type { Scene } from "../graphs/scene";

const MIXED = "mixed";

/** Returns an overlay, measured on the nodes of `measured`, for the boxes that are visible. */
export function overlayOn(data: OverlayData, measured: Scene, { scene, view }: Pane): Overlay {
  const { combine, numeric } = data;
  const valueOf = new Map(measured.hierarchy.nodes.map(({ name }, i) => [name, data.values[i] ?? null]));
  const values: Record<string, Cell> = {};
  for (const item of [...view.clusters, ...view.boxes]) {
    const nodes = item instanceof Group ? scene.hierarchy.nodesIn(item) : item.facts;
    const value = combined(
      nodes.map(({ name }) => valueOf.get(name) ?? null),
      combine,
      numeric,
    );
    const found = (item instanceof Group ? data.groups?.[item.path] : undefined) ?? value;
    if (found !== null) values[item.id] = found;
  }
  // Modules may have values of their own, which are not those of their nodes.
  return { ...data, values, total: data.groups?.[""] ?? combined(data.values, combine, numeric) };
}

/** Returns the value of a box that draws several nodes, as `fxlab.overlays.Overlay.of` does. */
function combined(values: Cell[], how: "sum" | "max", numeric: boolean): Cell {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return null;
  // Numbers that JSON does not have are texts too.
  if (!numeric && known.some((value) => typeof value === "string"))
    return new Set(known.map(String)).size === 1 ? known[0]! : MIXED;
  const numbers = known.map((value) =>
    value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value),
  );
  const result =
    how === "sum" ? numbers.reduce((sum, value) => sum + value, 0) : numbers.reduce((a, b) => Math.max(a, b));
  return Number.isFinite(result) ? result : String(result).replace("Infinity", "inf").toLowerCase();
}
