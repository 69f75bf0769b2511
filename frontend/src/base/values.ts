/** The values of a node, as `fxlab/view_model/node_value.py` describes them. */

import type { Cell } from "./table";

export type TensorKind = "value" | "original" | "difference" | "weight";

export interface TensorInfo {
  kind: TensorKind;
  name: string;
  shape: number[];
  dtype: string;
}

/** The inputs that a value can be looked at on. */
export interface InputChoices {
  /** The name of those that it is of; "" for the session's. */
  chosen: string;
  choices: { name: string; title: string }[];
  /** How many batches of the session's data can be asked for, by "batch " and a number from 0 on. */
  batches: number;
}

export interface NodeValue {
  /** The title of the stage that "original" is the value of. */
  compared: string;
  /** The title of the stage that the values are of, if it is not the one that is shown. */
  at: string;
  /** What is missing, and why. */
  notes: string[];
  /** Null where there is nobody to ask for others. */
  inputs: InputChoices | null;
  /** The first nodes upstream that hold NaN and infinite elements. */
  firstNan: string | null;
  firstInf: string | null;
  tensors: TensorInfo[];
  /** How many there are; only the first are described. */
  total: number;
}

/** Numbers that JSON cannot hold are texts. */
export interface TensorStatistics {
  /** Its place among the tensors of the node. */
  tensor: number;
  min: Cell;
  max: Cell;
  mean: Cell;
  std: Cell;
  zeros: Cell;
  nan: number;
  inf: number;
  negativeInf: number;
  firstNonFinite: number[] | null;
}

/** Two dimensions of a tensor; a cell stands for a block of elements. */
export interface TensorMap {
  rows: number | null;
  columns: number | null;
  /** The index in each dimension; null in those that are shown. */
  index: (number | null)[];
  shape: [rows: number, columns: number];
  block: [rows: number, columns: number];
  /** How many cells there are. */
  size: [rows: number, columns: number];
  /** Of four or eight bytes, in base64. */
  numbers: "f4" | "f8";
  cells: string;
  /** Maps of the same two dimensions, smaller, at indices in one of the others; one after another. */
  small?: SmallCells | null;
}

export interface SmallCells {
  dimension: number;
  /** The first index, and how many there are. */
  first: number;
  count: number;
  /** Of each. */
  size: [rows: number, columns: number];
  numbers: "f4" | "f8";
  cells: string;
}

/** One tensor, and the statistics of those that it is compared with. */
export interface ValuePart {
  tensor: number;
  statistics: TensorStatistics[];
  histogram: { edges: number[]; counts: number[] };
  map: TensorMap;
}

/** A node of a graph, the number of the stage that the graph is compared with, and the name of inputs. */
export interface ValuePlace {
  graph: number;
  name: string;
  before: number | null;
  inputs: string;
}

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

/** What a report has of the nodes that passes have changed. */
export interface WrittenValues {
  /** Which nodes those are, and how many were left out. */
  text: string;
  /** The numbers of the graphs whose nodes they are. */
  graphs: number[];
  nodes: Record<string, { value: NodeValue; parts: ValuePart[] }>;
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
