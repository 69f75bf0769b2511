/** The values of a node that is selected. */

import type { NodeValue, TensorMap, ValuePart } from "./wire";

/** Which part of a tensor somebody wants to see. */
export interface Axes {
  rows: number | null;
  columns: number | null;
  /** One for each dimension, or none. */
  index: number[];
}

/** The values of the node that is selected. */
export interface ShownValues {
  /** Nobody has asked for them, they are computed, there, could not be computed, or there are none to ask for. */
  state: "none" | "pending" | "ready" | "failed" | "absent";
  /** Why they are not there. */
  text: string;
  value: NodeValue | null;
  part: ValuePart | null;
  /** There is nobody to ask for other axes. */
  isFixed: boolean;
}

export const NO_VALUES: ShownValues = { state: "absent", text: "", value: null, part: null, isFixed: false };

/** Returns the cells of a map, row by row. */
export function cellsOf({ cells, numbers }: TensorMap): Float32Array | Float64Array {
  return numbersOf(numbers, cells);
}

/** Returns numbers of four or eight bytes. */
export function numbersOf(numbers: "f4" | "f8", cells: string): Float32Array | Float64Array {
  const bytes = Uint8Array.from(atob(cells), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  if (numbers === "f8")
    return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(i * 8, true));
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(i * 4, true));
}
