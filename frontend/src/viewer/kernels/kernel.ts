/** What the viewer needs of who has the model: a widget's kernel, or the data of a report, which answer less. */

import type { Data } from "../graphs/data";
import type {
  Asked,
  Measured,
  OverlayName,
  PanelState,
  Passes,
  StagesKnown,
  Status,
  Tables,
  ViewState,
  WrittenValues,
} from "../../base/wire";

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
