/** Tables, and what stands in their cells. */

export type Cell = null | boolean | number | string | Cell[];
export type ColumnKind =
  | "text"
  | "number"
  | "integer"
  | "bool"
  | "shape"
  | "nodes"
  | "error"
  | "share"
  | "seconds"
  | "bytes"
  | "stage"
  | "picture";

/**
 * In a column of kind "stage", which is a stage, cells have a sign and words, and then the names of nodes of
 * that stage; cells of kind "picture" are graphs in the DOT language.
 */
export interface Table {
  columns: { name: string; title: string; kind: ColumnKind }[];
  rows: Cell[][];
  total: number;
  /** The first cells of rows that lead nowhere. */
  unlinked?: string[];
  /** Rows lead to stages, or to nodes that may not be in the graph that is shown. */
  leads?: "stages" | "nodes" | "batches";
  /** First cell of a row -> the number of the stage that it leads to. */
  stages?: Record<string, number>;
  /** First cell of a row -> the number of the batch that it leads to. */
  numbers?: Record<string, number>;
  chart?: Chart;
}

/** Bytes by kind, stacked, at nodes in their order. */
export interface Chart {
  names: string[];
  kinds: { title: string; values: number[] }[];
  /** What the largest sum was before passes were applied. */
  before: number | null;
}
