/** What is known of the graphs, as `fxlab/view_model/graph_data` writes it: parts that add to one another. */

import type { BoxKind, CodeLine, Details, Overlay, Paints, Remarks, SourceFrame } from "../../base/protocol";
import type { Cell } from "../../base/table";
import type { WrittenCode, WrittenDifference, WrittenLine } from "../stages/codes";

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
type WrittenLook = Look | (Partial<Look> & { like: number });

export interface GroupData {
  path: string;
  id: string;
  /** A call of a module, a run of equal ones, a stretch of a long list, or nodes that only serve others. */
  kind: "root" | "module" | "repeat" | "segment" | "bookkeeping";
  label: string;
  class: string;
  closed: number;
  opened: number;
  /** How many nodes and how many leaves are in it. */
  count: number;
  size: number;
  /** Groups by their numbers; nodes that are drawn, each with its look; null if they have not arrived yet. */
  children: (number | [leaf: number, look: number])[] | null;
}

/** A node that is drawn: its id, its facts, and those of the nodes that are drawn with it. */
type LeafData = [id: string, ...facts: number[]];

/** Numbers of texts, and lists of them; see `Facts`. */
type WrittenFacts = [
  ...[name: number, op: number, target: number, module: number, owner: number, classes: number],
  values: number[],
  frames: number[],
  inputs: number[],
  marks: number[],
  parameters: number,
];

/** What is known of a node without asking for its details. */
export interface Facts {
  name: string;
  op: string;
  target: string;
  /** Path of the module that it belongs to, and its class. */
  module: string;
  owner: string;
  /** The classes of all modules around it, and that of the module that it calls. */
  classes: string;
  values: { shape: string; dtype: string }[];
  /** Numbers of the lines of source that made it, innermost first. */
  frames: number[];
  /** Names of the nodes that it reads. */
  inputs: string[];
  /** Signatures of the passes that changed it. */
  marks: string[];
  /** How many elements its parameters have. */
  parameters: number;
}

export interface GraphData {
  /** The number of the outermost group. */
  tree: number;
  /** Where the nodes, in the order of the tree, stand in the graph; each as a step from the one before. */
  order: number[];
  /** Positions of the leaves that each edge joins, as steps. */
  sources: number[];
  targets: number[];
  /** Which edges carry no data, but sizes, or what is checked; as steps. */
  asides: number[];
  /** Position of a leaf -> its words as a chip, and whether their width is known. */
  chips: Record<string, [text: string, width: number, known: boolean]>;
  overview: string[];
  opened: string[];
  /** What is said of the model. */
  model: Pick<Details, "title" | "fields" | "contents" | "trace"> & { inputs: string[] };
  signatures: string[];
  /** In a report: the place of what the kernel would say of nodes, in their order, and of groups. */
  extras?: { nodes: number[]; groups: Record<string, number> };
}

/** What two graphs side by side have that they do not have alone. */
export interface PairData {
  /** Numbers of the graphs. */
  after: number;
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

/** What the kernel says of a node or a group beyond what is known here. */
export type Extra = Pick<Details, "fields"> &
  Partial<Pick<Details, "arguments" | "parameters" | "candidates" | "rewrites" | "contents">>;

/** Values in the order of the nodes of a graph. */
export type OverlayData = Omit<Overlay, "values" | "total"> & {
  graph: number;
  values: Cell[];
  /** Of groups, by path, where modules have values of their own. */
  groups?: Record<string, Cell>;
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
  chipSpan: number;
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

/** What is new since the part before. */
export interface DataPart {
  texts: string[];
  facts: WrittenFacts[];
  frames: SourceFrame[];
  looks: WrittenLook[];
  extras: Extra[];
  trees: GroupData[];
  leaves: LeafData[];
  graphs: GraphData[];
  pairs: PairData[];
  overlays: OverlayData[];
  codeLines: WrittenLine[];
  codes: WrittenCode[];
  codeDifferences: WrittenDifference[];
  /** Groups that have arrived: of which graph, the number of the group that stood for it, its own number. */
  filled: [graph: number, place: number, tree: number][];
  /** Layouts that are made already: DOT -> SVG. */
  layouts: Record<string, string>;
  /** The first part has these. */
  metrics?: Metrics;
  paints?: Paints;
  remarks?: Remarks;
  /** Signature of a pass -> names of the nodes of the last stage that it would change. */
  matches?: Record<string, string[]>;
}

/** All that has arrived. */
export class Data {
  readonly frames: SourceFrame[] = [];
  readonly looks: Look[] = [];
  readonly extras: Extra[] = [];
  readonly trees: GroupData[] = [];
  readonly leaves: LeafData[] = [];
  readonly graphs: GraphData[] = [];
  readonly pairs: PairData[] = [];
  readonly overlays: OverlayData[] = [];
  readonly codes: WrittenCode[] = [];
  readonly codeDifferences: WrittenDifference[] = [];
  readonly layouts: Record<string, string> = {};
  metrics!: Metrics;
  paints!: Paints;
  remarks: Remarks = { about: "", list: [] };
  matches: Record<string, string[]> = {};
  /** Numbers of graphs of which groups have arrived late, until somebody has looked at them anew. */
  readonly filled = new Set<number>();
  private readonly texts: string[] = [];
  private readonly rows: WrittenFacts[] = [];
  private readonly read: Facts[] = [];
  private readonly codeLines: WrittenLine[] = [];
  private readonly readLines: CodeLine[] = [];

  add(part: DataPart): void {
    append(this.texts, part.texts);
    append(this.rows, part.facts);
    append(this.frames, part.frames);
    append(this.extras, part.extras);
    append(this.trees, part.trees);
    append(this.leaves, part.leaves);
    append(this.overlays, part.overlays);
    append(this.pairs, part.pairs);
    append(this.codeLines, part.codeLines);
    append(this.codes, part.codes);
    append(this.codeDifferences, part.codeDifferences);
    for (const look of part.looks)
      this.looks.push("like" in look ? { ...this.looks[look.like]!, ...look } : look);
    for (const graph of part.graphs)
      this.graphs.push({
        ...graph,
        order: summed(graph.order),
        sources: summed(graph.sources),
        targets: summed(graph.targets),
        asides: summed(graph.asides),
      });
    for (const [graph, place, tree] of part.filled) {
      this.trees[place] = this.trees[tree]!;
      this.filled.add(graph);
    }
    Object.assign(this.layouts, part.layouts);
    if (part.metrics) this.metrics = part.metrics;
    if (part.paints) this.paints = part.paints;
    if (part.remarks) this.remarks = part.remarks;
    if (part.matches) this.matches = part.matches;
  }

  facts(row: number): Facts {
    return (this.read[row] ??= this.factsOf(this.rows[row]!));
  }

  /** A line of code; those of two stages that are equal are one. */
  codeLine(number: number): CodeLine {
    const [text, ...names] = this.codeLines[number]!;
    return (this.readLines[number] ??= { text, nodes: names.map((name) => this.texts[name]!) });
  }

  private factsOf(row: WrittenFacts): Facts {
    const { texts } = this;
    const [name, op, target, module, owner, classes, values, frames, inputs, marks, parameters] = row;
    const results: Facts["values"] = [];
    for (let i = 0; i < values.length; i += 2)
      results.push({ shape: texts[values[i]!]!, dtype: texts[values[i + 1]!]! });
    return {
      name: texts[name]!,
      op: texts[op]!,
      target: texts[target]!,
      module: texts[module]!,
      owner: texts[owner]!,
      classes: texts[classes]!,
      values: results,
      frames,
      inputs: inputs.map((number) => texts[number]!),
      marks: marks.map((number) => texts[number]!),
      parameters,
    };
  }
}

/** As `push(...items)`, which has too many arguments where there are many items. */
function append<T>(list: T[], items: readonly T[]): void {
  for (const item of items) list.push(item);
}

function summed(steps: number[]): number[] {
  let sum = 0;
  return steps.map((step) => (sum += step));
}
