/** The value of a box that draws several nodes; the twin of `fxlab.overlays.Overlay.of`. */

import type { Cell } from "../base/protocol";

const MIXED = "mixed";

export function combined(values: Cell[], how: "sum" | "max", numeric: boolean): Cell {
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
