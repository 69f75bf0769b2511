/** What is embedded in a report: `fxlab/html_report/portable.py` and `report.py` write it. */

import type { BoxKind, Cell, Details, Overlay, Paints, Passes, SourceFrame, Tables } from "../base/protocol";

/** A text and its width; null where the width is a guess. */
export type Word = [text: string, width: number | null];

/** A box as it looks in every view. */
export interface Look {
  kind: BoxKind;
  label: string;
  details: string[];
  classes: string;
  title: Word;
  lines: Word[];
  badge: Word | null;
  width: number;
  height: number;
  colours: [fill: string, border: string];
  openable: boolean;
  changed: number;
  marks: number[];
  /** Of a node: shape and dtype of what it returns. */
  result?: string;
}

/** A look as it is written: where it is like an earlier one, what is different. */
export type WrittenLook = Look | (Partial<Look> & { like: number });

/** Returns looks that can be read alone. */
export function completed(written: WrittenLook[]): Look[] {
  const looks: Look[] = [];
  for (const look of written) looks.push("like" in look ? { ...looks[look.like]!, ...look } : look);
  return looks;
}

export interface GroupData {
  path: string;
  id: string;
  closed: number;
  opened: number;
  details: number;
  count: number;
  /** Groups by their numbers; nodes that are drawn, each with its look. */
  children: (number | [leaf: number, look: number])[];
}

/** A node that is drawn, and the nodes that are drawn with it. */
export type LeafData = [id: string, name: string, ...attributes: string[]];

export interface GraphData {
  /** The number of the outermost group. */
  tree: number;
  /** Positions of the leaves that each edge joins. */
  sources: number[];
  targets: number[];
  /** Position of a leaf -> its words as a chip, and whether their width is known. */
  chips: Record<string, [text: string, width: number, known: boolean]>;
  /** For each node of the graph, its place among the details of nodes. */
  nodes: number[];
  overview: string[];
  opened: string[];
  /** The place of what is said of the model among the details of groups. */
  details: number;
  /** Number of the stage, and of the one that it is compared with. */
  stage: number;
  before: number | null;
  signatures: string[];
  /** Values in the order of the nodes; those of two stages as one graph are the values of the stage. */
  overlays: (Omit<Overlay, "values" | "total"> & { values: Cell[] })[];
}

/** What two stages side by side have that they do not have alone. */
export interface PairData {
  /** Number of the stage that is shown, and of the one beside it. */
  stage: number;
  before: number;
  signatures: string[];
  /** Of each: place in its tree -> the look of a box with the marks of the two. */
  looks: [shown: Record<number, number>, before: Record<number, number>];
  /**
   * Position of a node -> those of the nodes beside that it stands for, if that is not the one of its name
   * alone.
   */
  counterparts: Record<number, number[]>;
}

/** Details in which links are names alone, and frames numbers. */
export type BareDetails = Omit<Details, "box" | "crumbs" | "inputs" | "users" | "frames"> & {
  inputs: string[];
  users: string[];
  frames?: number[];
  /** Of a node: the classes of the modules around it. */
  classes?: string;
};

export interface Metrics {
  font: string;
  titleSize: number;
  lineSize: number;
  chipSize: number;
  titleHeight: number;
  lineHeight: number;
  chipHeight: number;
  paddingX: number;
  paddingY: number;
  toggleRoom: number;
  chipGap: number;
  chipPadding: number;
  chipRowsGap: number;
  /** Width of "and  more", and of a digit between. */
  more: [number, number];
  chipsPerRow: number;
  mostChips: number;
  chipReaders: number;
  chipClusters: number;
  revealBudget: number;
  sheet: number;
  ink: string;
  softInk: string;
  edge: string;
  groupInk: string;
  changed: string;
  changedCluster: string;
  chipInk: string;
  chipColours: [string, string];
  clusterColours: [string, string][];
}

export interface SessionData<L = Look> {
  metrics: Metrics;
  paints: Paints;
  looks: L[];
  nodes: BareDetails[];
  groups: BareDetails[];
  frames: SourceFrame[];
  /** Groups with all in them, and nodes that are drawn: many are the same in several graphs. */
  trees: GroupData[];
  leaves: LeafData[];
  graphs: GraphData[];
  pairs: PairData[];
  /** Layouts that are made already: DOT -> SVG. */
  layouts: Record<string, string>;
  stages: string[];
  matches: Record<string, string[]>;
  passes: Passes;
  tables: Tables;
}
