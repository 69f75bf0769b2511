/** What the panels show, and what they, the viewer and the kernel say to one another. */

import type { Cell, Table } from "./table";
import type { Axes, ShownValues, ValuePlace } from "./values";

export type BoxKind = "op" | "group" | "repeat" | "placeholder" | "output" | "chip" | "cluster";

export interface Box {
  kind: BoxKind;
  label: string;
  path: string;
  /** Name of the node, for boxes that draw one. */
  node: string | null;
  count: number;
  details: string[];
  openable: boolean;
  changed: number;
  /** Numbers of the passes that changed nodes in the box. */
  marks: number[];
  refersTo: string;
  belongsTo: string;
}

export interface Edge {
  source: string;
  target: string;
  label: string;
}

export interface Picture {
  svg: string;
  width: number;
  height: number;
  boxes: Record<string, Box>;
  edges: Record<string, Edge>;
  /** Signature of the pass with each mark. */
  signatures: string[];
  /** The number of the stage of the pass with each mark; null where it has none. */
  numbers: (number | null)[];
  /** Signature of a pass -> box id -> how many nodes in it the pass would change. */
  matches: Record<string, Record<string, number>>;
  /** Two stages as one graph: the marks are not passes but what became of a node. */
  compared?: boolean;
  /** The second of them is what a pass would make of the first. */
  preview?: boolean;
}

export interface Reason {
  reason: string;
  kind: "matched" | "excluded" | "refused";
  /** The nodes by their kinds: "36 linears". */
  what: string;
  count: number;
  nodes: string[];
}

export interface Pass {
  /** What it is called for as long as it is offered; its signature changes with what it excludes. */
  key: string;
  signature: string;
  name: string;
  className: string;
  description: string;
  arguments: { name: string; value: string }[];
  preserves: boolean;
  on: boolean;
  /** The number of its stage, which is its number wherever it is shown; null while it is off. */
  stage: number | null;
  /** What it has changed, in a sentence; "" while it is off. */
  changes: string;
  /** It has not been asked for its candidates yet. */
  isLooking: boolean;
  /** The candidates that it takes: "12 candidates: 36 linears"; "" if there are none, or it does not say. */
  candidates: string;
  /** How many they are; null if it does not say. */
  matched: number | null;
  refused: number | null;
  /** Whether single candidates of it can be excluded. */
  canExclude: boolean;
  /** How many candidates a person has excluded. */
  excluded: number;
  reasons: Reason[];
  note: string;
  error: PassError | null;
}

/** What a pass has raised. */
export interface PassError {
  text: string;
  /** The line of the author's code, short and with its folders, and what stands there; empty where there is none. */
  place: string;
  file: string;
  code: string;
  /** Outermost first: words and frames of the author, and how many frames of others each stretch hides. */
  traceback: { hides: number; text: string }[];
}

/** An option of a compiler that its passes read. */
export interface Option {
  name: string;
  on: boolean;
  /** Whether it is other than at first. */
  isChanged: boolean;
  phases: string;
  description: string;
  /** Why it cannot be switched; empty if it can. */
  fixed: string;
}

export interface Passes {
  passes: Pass[];
  options?: Option[];
  canUndo: boolean;
  canRedo: boolean;
  /** Python code that makes the stack again. */
  code?: string;
  /** Nothing can be switched: there is no kernel. */
  fixed?: boolean;
  /** When a report was made, and with which versions: lines to read. */
  made?: string[];
}

/** A pass that could be added, and its arguments. */
export interface Offer {
  key: string;
  title: string;
  description: string;
  parameters: { name: string; required: boolean; default: string; isBool: boolean }[];
}

/** The graph beside the one that is shown: of the stage that it is compared with. */
export interface Before {
  picture?: Picture;
}

/** What a stage is compared with: nothing, the stage below whichever that is, or the stage of a number. */
export type Comparison = "" | "below" | number;

/** The stages of the stack, from the original on, and the number of the one whose graph is shown. */
export interface Stages {
  names: string[];
  /** What the pass of each has changed, in a sentence; "" for the original, and if that is nothing. */
  changes: string[];
  shown: number;
  compared: Comparison;
  /** Whether the two are shown side by side, and not as one graph. */
  beside: boolean;
  /** The number of the stage that it is compared with, if it is. */
  before: number | null;
  /** The numbers of the stages that the one that is shown can be compared with. */
  comparisons: number[];
  /** The pass that is tried out, and how much it would do. */
  preview?: Preview | null;
}

export interface Preview {
  signature: string;
  name: string;
  text: string;
}

/** How the boxes of a graph are arranged, and what is said on its lines. */
export interface Arrangement {
  /** Where lines lead. */
  direction: "down" | "right";
  /** Whether lines say the shapes of what flows along them. */
  shapes: boolean;
  /** Whether nodes that only serve others are shown one by one. */
  bookkeeping: boolean;
}

/** A value for each box, or node, by which they are coloured. */
export interface Overlay {
  name: string;
  title: string;
  unit: string;
  combine: "sum" | "max";
  numeric: boolean;
  /** Its values are written on boxes, and colour none. */
  isText?: boolean;
  /** Of all nodes. */
  total: Cell;
  values: Record<string, Cell>;
  /** Words that are written on boxes. */
  labels?: Record<string, string>;
}

export interface Overlays {
  offered: { name: string; title: string }[];
  overlay: Overlay | null;
  /** The same of the graph beside the one that is shown. */
  before?: Overlay | null;
  paints: Paints;
}

/** The colours in which overlays are saved: those of paper, fill and border, whatever the page has. */
export interface Paints {
  heat: [low: string, high: string];
  heatLine: string;
  plain: [string, string];
  kinds: [string, string][];
  changed: string;
  ink: string;
}

export interface Link {
  name: string;
  text: string;
}

export type Token = { text: string } | { node: string };

export interface SourceFrame {
  file: string;
  line: number;
  function: string;
  code: string;
  excerpt: { line: number; text: string }[];
}

/** What can be done with a node alone: a rewrite that is excluded, or included again. */
export interface Rewrite {
  signature: string;
  /** How many rewrites the node stands for. */
  count: number;
  isExcluded: boolean;
}

export interface Details {
  kind: "node" | "group" | "model";
  box: string | null;
  /** Whether that box is in the graph beside the one that is shown. */
  before?: boolean;
  /** The boxes on the other side that stand for it. */
  counterparts?: string[];
  title: string;
  subtitle: string;
  crumbs: { label: string; path: string }[];
  fields: { label: string; value: string; code: boolean }[];
  inputs: Link[];
  users: Link[];
  /** Signatures of the passes that changed it. */
  marks: string[];
  /** Where two stages are compared: what became of it, such as "added". */
  became?: string[];
  name?: string;
  path?: string;
  values?: { shape: string; dtype: string }[];
  arguments?: { label: string; tokens: Token[] }[];
  parameters?: { name: string; shape: string; dtype: string; elements: number; kind: string }[];
  frames?: SourceFrame[];
  candidates?: { signature: string; matched: boolean; reason: string }[];
  rewrites?: Rewrite[];
  contents?: { name: string; count: number }[];
  trace?: string[];
  /** The kernel has not answered yet. */
  isPartial?: boolean;
}

export interface Judgement {
  agrees: boolean;
  text: string;
}

export interface Outputs {
  state: "none" | "pending" | "ready" | "failed";
  /** What the verdict says; null as long as there is none. */
  agrees?: boolean | null;
  /** There is a verdict, so that there is nothing to ask. */
  isSettled?: boolean;
  /** There is nobody to ask. */
  isFinal?: boolean;
  judgement?: Judgement | null;
  text: string;
  table: Table | null;
}

export interface ExtraTable {
  name: string;
  title: string;
  text: string;
  table: Table | null;
  /** Whether the first column names nodes. */
  jumps: boolean;
}

export interface Tables {
  outputs: Outputs;
  nodes: { text: string; table: Table };
  more?: ExtraTable[];
}

/** A table that is made when somebody asks for it. */
export interface Measured {
  name: string;
  title: string;
  action: string;
  state: "none" | "pending" | "ready" | "failed";
  text: string;
  table: Table | null;
}

export interface Status {
  busy: { text: string; step: number } | null;
  error: { number: number; title: string; text: string } | null;
}

export interface SearchResult {
  kind: "node" | "group";
  name: string;
  text: string;
}

export interface SearchAnswer {
  /** The best of all. */
  results: SearchResult[];
  total: number;
  /** How many of all are nodes. */
  nodes: number;
  /** Why the query cannot be answered. */
  message: string;
}

/** The nodes that are lit up because a query finds them. */
export interface NodesFound {
  query: string;
  /** How many they are in the graph that is shown. */
  count: number;
  /** Why the query cannot be answered. */
  message: string;
  /** Box id -> how many of the nodes are in it, also in the graph beside. */
  boxes: Record<string, number>;
  before: Record<string, number>;
}

/** How a panel stands; "auto": as there is something in it to show. */
export type Standing = "auto" | "open" | "folded";

/** How a person wants the panels; sizes are in pixels, null as at first. */
export interface PanelState {
  passes: Standing;
  details: Standing;
  tables: Standing;
  left: number | null;
  right: number | null;
  bottom: number | null;
}

export const PANELS_AT_FIRST: PanelState = {
  ...{ passes: "auto", details: "auto", tables: "auto" },
  ...{ left: null, right: null, bottom: null },
};

export interface CodeLine {
  text: string;
  /** Names of the nodes that it is of. */
  nodes: string[];
}

/** What has become of a line; lines that have changed are pairs. */
export type CodeChange = "same" | "changed" | "removed" | "added";

/** The generated Python of the stage that is shown, and of the one that it is compared with. */
export interface Code {
  /** Nobody has asked for it, it is on its way, there, or it will not come. */
  state: "none" | "pending" | "ready" | "failed";
  /** Why it will not come. */
  text: string;
  after: CodeLine[];
  before: CodeLine[] | null;
  /** What has happened to lines that follow one another, and how many they are. */
  runs: [CodeChange, number][];
  /** Whether it is known which nodes lines are of. */
  isLinked: boolean;
}

/** Names of the nodes that are selected: of the stage that is shown, and of the one that it is compared with. */
export interface SelectedNodes {
  shown: string[];
  before: string[];
}

/** What to know before the graph is taken for the whole model. */
export interface Remarks {
  /** One sentence for all of them. */
  about: string;
  list: Remark[];
}

export interface Remark {
  what: string;
  /** File and line of the model's code, and what stands there; empty where there is none. */
  place: string;
  code: string;
  means: string;
  advice: string;
}

export interface State {
  picture: Picture;
  before: Before;
  passes: Passes;
  details: Details;
  /** What is said of the model, whatever is selected. */
  model: Details;
  tables: Tables;
  measured: Measured[];
  status: Status;
  stages: Stages;
  overlays: Overlays;
  found: NodesFound | Record<string, never>;
  arrangement: Arrangement;
  /** In pixels; null follows the window. */
  height: number | null;
  panels: PanelState;
  remarks: Remarks;
  code: Code;
  selected: SelectedNodes;
  /** Of the node that is selected. */
  values: ShownValues;
}

/** What a person wants of the session; whoever has the model does it. */
export type ToSession =
  | { type: "toggle"; signature: string; on: boolean }
  | { type: "set-option"; name: string; on: boolean }
  | { type: "preview"; signature: string }
  | { type: "exclude" | "include"; signature: string; node: string }
  | { type: "move"; signature: string; place: number }
  | { type: "add"; key: string; arguments: Record<string, string> }
  | { type: "remove"; signature: string }
  | { type: "undo" | "redo" | "reset" | "refresh" | "judge" | "end-preview" }
  | { type: "measure"; name: string }
  | { type: "open-batch"; number: number };

/** Of a file that the kernel writes. */
export type FileSuffix = "pdf" | "dot";

/** What a person wants to see; the page does it. */
export type ToViewer =
  | ToSession
  | { type: "list-offers"; request: string }
  | { type: "export-file"; suffix: FileSuffix; request: string }
  | { type: "overview" | "open-level" | "close-level" | "clear-selection" }
  | { type: "arrange"; arrangement: Partial<Arrangement> }
  | { type: "open" | "close"; path: string }
  | { type: "select-group"; path: string; before: boolean }
  | { type: "select-node"; name: string; show: boolean; before: boolean }
  | { type: "reveal-pass"; signature: string }
  | { type: "search"; query: string; request: string }
  | { type: "filter"; query: string }
  | { type: "show-stage"; stage: number; compared: Comparison; beside: boolean }
  | { type: "show-node"; name: string; stage: number }
  | { type: "show-overlay"; name: string }
  /** Whether somebody looks at the code. */
  | { type: "show-code"; on: boolean }
  /** The values of the node that is selected, and which part of them. */
  | { type: "show-values"; inputs?: string }
  | ({ type: "show-part"; tensor: number } & Axes);

/** What the viewer asks of the kernel, which answers each. */
export type ToKernel =
  | ToSession
  | { type: "list-offers" | "all-data" | "candidates" }
  | { type: "file"; suffix: FileSuffix }
  | { type: "graph"; version: number; stage: number; before: number | null; beside: boolean }
  | { type: "code"; version: number; stage: number; before: number | null }
  | { type: "rest"; graph: number }
  | { type: "details"; graph: number; kind: "node" | "group"; name: string }
  | { type: "overlay"; graph: number; name: string }
  | ({ type: "value" } & ValuePlace)
  | ({ type: "value-part"; tensor: number } & ValuePlace & Axes)
  | { type: "lay-out"; outline: string };

/** What the viewer tells the panels. */
export type ToApp =
  | { type: "focus"; boxes: string[]; gently: boolean; before: boolean }
  | ({ type: "found"; request: string } & SearchAnswer)
  | { type: "offers"; request: string; offers: Offer[] }
  /** Its bytes come beside the message. */
  | { type: "file"; suffix: FileSuffix; request: string }
  /** A message was dealt with, whatever came of it. */
  | { type: "done" };
