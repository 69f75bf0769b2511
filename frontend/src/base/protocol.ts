/** What the panels show, and what they, the viewer and the kernel say to one another. */

import type {
  Arrangement,
  Asked,
  BoxKind,
  Cell,
  CodeChange,
  Extra,
  Measured,
  NodeValue,
  OverlayData,
  OverlayName,
  Paints,
  PanelState,
  Passes,
  Remarks,
  Role,
  ShownPreview,
  SourceFrame,
  Status,
  Tables,
  ValuePart,
} from "./wire";

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

/** What lines are drawn by, and the kinds that have colours. */
export interface LineKinds {
  title: string;
  kinds: string[];
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
  /** What the looks of lines mean; null where they are alike. */
  lines: LineKinds | null;
  /** Signature of a pass -> box id -> how many nodes in it the pass would change. */
  matches: Record<string, Record<string, number>>;
  /** Two stages as one graph: the marks are not passes but what became of a node. */
  compared?: boolean;
  /** The second of them is what a pass would make of the first. */
  preview?: boolean;
}

/** What a stage is compared with: nothing, the stage below whichever that is, or the stage of a number. */
export type Comparison = "" | "below" | number;

/** The stage that is looked at, and how. */
export interface LookedAt {
  stage: number;
  compared: Comparison;
  /** Whether the two are shown side by side, and not as one graph. */
  beside: boolean;
  /** The numbers of stages whose graphs stand between the two. */
  between: number[];
}

/** The stages of the stack, from the original on, and the number of the one whose graph is shown. */
export interface Stages extends Omit<LookedAt, "stage"> {
  names: string[];
  /** What the pass of each has changed, in a sentence; "" for the original, and if that is nothing. */
  changes: string[];
  shown: number;
  /** The numbers of the stages on the screen, from left to right. */
  row: number[];
  /** The numbers of the stages that can be shown in one more pane. */
  addable: number[];
  /** The number of the stage that it is compared with, if it is. */
  before: number | null;
  /** The numbers of the stages that the one that is shown can be compared with. */
  comparisons: number[];
  /** The pass that is tried out, and how much it would do. */
  preview?: Preview | null;
}

export const NO_STAGES: Stages = {
  ...{ names: [], changes: [], shown: 0, compared: "", before: null },
  ...{ beside: false, between: [], row: [0], addable: [], comparisons: [] },
};

export type Preview = Pick<ShownPreview, "signature" | "name" | "text">;

/** A value for each box, or node, by which they are coloured. */
export interface Overlay extends Omit<OverlayData, "graph" | "values" | "groups"> {
  /** Of all nodes. */
  total: Cell;
  values: Record<string, Cell>;
}

export interface Overlays {
  offered: OverlayName[];
  overlay: Overlay | null;
  /** The same of the graphs beside the one that is shown, from left to right. */
  beside: Overlay[];
  paints: Paints;
}

export interface Link {
  name: string;
  text: string;
}

export interface Details extends Extra {
  kind: "node" | "group" | "model";
  box: string | null;
  /** The number of the pane in which that box is: 0 is that of the stage that is shown. */
  pane?: number;
  /** The boxes in each pane that stand for it. */
  counterparts?: string[][];
  title: string;
  subtitle: string;
  crumbs: { label: string; path: string }[];
  inputs: Link[];
  users: Link[];
  /** Signatures of the passes that changed it. */
  marks: string[];
  /** Where two stages are compared: what became of it, such as "added". */
  became?: string[];
  name?: string;
  path?: string;
  values?: { shape: string; dtype: string }[];
  frames?: SourceFrame[];
  trace?: string[];
  /** The kernel has not answered yet. */
  isPartial?: boolean;
}

export interface SearchResult {
  kind: "node" | "group";
  name: string;
  text: string;
}

export interface SearchAnswer {
  results: SearchResult[];
  total: number;
  /** How many of all are nodes. */
  nodes: number;
  /** Why the query cannot be answered. */
  message: string;
  /** A word that finds something where the query finds nothing; "" for none. */
  suggestion?: string;
}

/** The nodes that are lit up because a query finds them. */
export interface NodesFound {
  query: string;
  /** How many they are in the graph that is shown. */
  count: number;
  /** Why the query cannot be answered. */
  message: string;
  /** For each pane, box id -> how many of the nodes are in it. */
  boxes: Record<string, number>[];
}

/** Nodes that are lit up with a part in something, by the boxes that they are in. */
export interface Lit {
  boxes: Record<string, Role>;
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

export const NO_CODE: Code = { state: "none", text: "", after: [], before: null, runs: [], isLinked: true };

/** Names of the nodes that are selected: of the stage that is shown, and of the one that it is compared with. */
export interface SelectedNodes {
  shown: string[];
  before: string[];
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

export const NO_VALUES: ShownValues = { state: "absent", text: "", value: null, part: null, isFixed: false };

export interface State {
  picture: Picture;
  /** The graphs beside the one that is shown, from left to right. */
  beside: Picture[];
  passes: Passes;
  details: Details;
  /** What is said of the model, whatever is selected. */
  model: Details;
  tables: Tables;
  measured: Measured[];
  status: Status;
  stages: Stages;
  overlays: Overlays;
  found: NodesFound | null;
  lit: Lit;
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
export const FOR_SESSION = [
  ...(["toggle", "preview", "end-preview", "exclude", "include", "apply-up-to"] as const),
  ...(["move", "remove", "undo", "redo", "reset"] as const),
  ...(["refresh", "judge", "measure", "open-batch"] as const),
];
export type ToSession = Extract<Asked, { type: (typeof FOR_SESSION)[number] }>;

/** What is asked of the session, and answered to who asks. */
export type Asking = Extract<Asked, { type: "rewrite" | "near-miss" }>;

/** Of a file that the kernel writes. */
export type FileSuffix = "html" | "pdf" | "dot";

/** What a person wants to see; the page does it, and answers some of it. */
export type ToViewer =
  | ToSession
  | Asking
  | { type: "export-file"; suffix: FileSuffix }
  | { type: "overview" | "open-level" | "close-level" | "clear-selection" }
  | { type: "arrange"; arrangement: Partial<Arrangement> }
  | { type: "open" | "close"; path: string }
  | { type: "select-group"; path: string; pane: number }
  | { type: "select-node"; name: string; show: boolean; pane: number }
  | { type: "reveal-pass"; signature: string }
  | { type: "search"; query: string }
  | { type: "filter"; query: string }
  /** Lights nodes up, at a stage that has them; null for the one that is shown. */
  | { type: "light"; stage: number | null; compared: Comparison; roles: Record<string, Role> }
  | ({ type: "show-stage" } & LookedAt)
  | { type: "show-node"; name: string; stage: number }
  | { type: "show-overlay"; name: string }
  /** Whether somebody looks at the code. */
  | { type: "show-code"; on: boolean }
  /** The values of the node that is selected, and which part of them. */
  | { type: "show-values"; inputs?: string }
  | ({ type: "show-part"; tensor: number } & Axes);

/** Boxes that the panes are to bring into sight. */
export interface Focus {
  boxes: string[];
  gently: boolean;
  pane: number;
}

/** What the panels need: the state of the inspector, and messages. */
export interface Model {
  get<K extends keyof State>(name: K): State[K];
  set<K extends keyof State>(name: K, value: State[K]): void;
  /** Is done when a message was dealt with, whatever came of it: then with the answer, null for none or an error. */
  send(content: ToViewer): Promise<unknown>;
  on(event: string, callback: (...values: never[]) => void): void;
  off(event: string, callback: (...values: never[]) => void): void;
}
