/** What the viewer needs of who has the model: a widget's kernel, or the data of a report, which answer less. */

import type {
  Arrangement,
  Measured,
  PanelState,
  Passes,
  Status,
  Tables,
  ToKernel,
} from "../../base/protocol";
import type { WrittenValues } from "../../base/values";
import type { Data } from "../graphs/data";

/** How the graph is looked at; a kernel keeps it, and may change it on behalf of a script. */
export interface ViewState extends Arrangement {
  /** Number of the stage; null for the last one, whichever that is. */
  stage: number | null;
  compared: "" | "below" | number;
  beside: boolean;
  /** Paths of the groups that are open; null leaves them to the page. */
  opened: string[] | null;
  query: string;
  overlay: string;
  selected: { kind: "node" | "group"; name: string; before: boolean } | null;
}

/** The stages of the session, and the numbers of the graphs that have arrived. */
export interface StagesKnown {
  names: string[];
  /** What the pass of each has changed; "" if that is nothing. */
  changes: string[];
  /** Another one after each change of the session. */
  version: number;
  /** By the number of the stage. */
  alone: Record<string, number>;
  /** By the number of the stage and that of the one that it is compared with, as in `2/1`. */
  merged: Record<string, number>;
  pairs: Record<string, number>;
  /** The numbers of the codes that have arrived, and of their differences. */
  codes: Record<string, number>;
  codeDifferences: Record<string, number>;
  /** The pass that is tried out, and the graph of what it would make of the last stage. */
  preview: {
    signature: string;
    name: string;
    text: string;
    graph: number;
    code?: number;
    difference?: number;
  } | null;
}

export interface KernelState {
  passes: Passes;
  tables: Tables;
  measured: Measured[];
  status: Status;
  stages: StagesKnown;
  /** The overlays there are, measured or not. */
  overlays: { name: string; title: string }[];
  view: ViewState;
  height: number | null;
  panels: PanelState;
}

/** What a person has chosen in the page, which is there again when it is opened again. */
export type Kept = "view" | "height" | "panels";

/** A buffer that came with an answer. */
export type Answer = { value: unknown; buffers: DataView<ArrayBuffer>[] };

export interface Kernel {
  readonly state: KernelState;
  /** All that has arrived; another object when everything was written anew. */
  readonly data: Data;
  /** Whether it only has what was written down, and answers nothing. */
  readonly isFixed: boolean;
  /** The values of nodes that were written down, if any were. */
  readonly values?: WrittenValues | null;
  /** Is done when all that has arrived until now is read. */
  ready(): Promise<void>;
  /**
   * Calls back with the name of each part of the state that changes; of the view, with what a script has
   * changed in it.
   */
  follow(changed: (name: keyof KernelState, view?: Partial<ViewState>) => void): void;
  keep<K extends Kept>(name: K, value: KernelState[K]): void;
  /**
   * Asks for something. Throws at once if there is nobody to ask; fails if there was an error, which the
   * kernel shows itself.
   */
  ask(message: ToKernel): Promise<Answer>;
}

/** An error that is shown already. */
export class ShownError extends Error {}
