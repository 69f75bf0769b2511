/** What the viewer needs of who has the model: a widget's kernel, or the data of a report, which answer less. */

import type { Arrangement, PanelState } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type {
  Asked,
  Measured,
  OverlayName,
  Passes,
  StagesKnown,
  Status,
  Tables,
  WrittenValues,
} from "../../base/wire";
import type { Selection } from "../graphs/panes";

/** How the graph is looked at; a kernel keeps it, and may change it on behalf of a script. */
export interface ViewState extends Arrangement {
  /** Number of the stage; null for the last one, whichever that is. */
  stage: number | null;
  compared: "" | "below" | number;
  beside: boolean;
  /** Numbers of stages whose graphs stand between the two. */
  between: number[];
  /** Paths of the groups that are open; null leaves them to the page. */
  opened: string[] | null;
  query: string;
  overlay: string;
  selected: Selection | null;
}

export interface KernelState {
  passes: Passes;
  tables: Tables;
  measured: Measured[];
  status: Status;
  stages: StagesKnown;
  /** The overlays there are, measured or not. */
  overlays: OverlayName[];
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
  ask(message: Asked): Promise<Answer>;
}

/** An error that is shown already. */
export class ShownError extends Error {}
