/** What there is of a session where there is no kernel: the data of a report. */

import { PANELS_AT_FIRST } from "../../base/protocol";
import { inRow } from "../../base/stages";
import { Data } from "../graphs/data";
import type { Answer, Kept, Kernel, KernelState } from "./kernel";
import { fragmentOf, partsOf, VIEW_AT_FIRST, viewOf } from "../view_link";
import type { Asked, PanelState, ViewState, WrittenReport, WrittenValues } from "../../base/wire";

/** How the panels stand, in all graphs of a report. */
let panels = PANELS_AT_FIRST;

export class ReportKernel implements Kernel {
  readonly isFixed = true;
  readonly data = new Data();
  readonly state: KernelState;
  readonly values: WrittenValues | null;
  private readonly closed = new AbortController();
  /** The timer of the address, which takes a browser 5 ms: first it paints what was clicked. */
  private address = 0;

  /** `graph` is its number among several in one report, from 1, which the address then begins with. */
  constructor(
    { data, stages, passes, tables, values = null, colours = "", row = [] }: WrittenReport,
    private readonly graph = 0,
  ) {
    this.values = values;
    this.data.add(data);
    this.state = {
      ...{ stages, passes, tables },
      measured: [],
      status: { busy: null, error: null },
      overlays: [],
      view: VIEW_AT_FIRST,
      height: 0,
      panels,
    };
    const { row: shown, ...looked } = inRow(row);
    const atFirst = { ...VIEW_AT_FIRST, ...(shown.length > 1 ? looked : {}), overlay: colours };
    this.state.view = (location.hash.length > 1 ? this.viewOfAddress() : null) ?? atFirst;
  }

  async ready(): Promise<void> {}

  /** Another address that somebody has entered is another view. */
  follow(changed: (name: keyof KernelState, view?: Partial<ViewState>) => void): void {
    const follow = (): void => {
      if (this.graph && partsOf(location.hash).graph !== this.graph) return;
      clearTimeout(this.address);
      const view = this.viewOfAddress();
      if (view) changed("view", view);
      else changed("status");
    };
    window.addEventListener("hashchange", follow, { signal: this.closed.signal });
  }

  /** Leaves the address to others. */
  dispose(): void {
    this.closed.abort();
  }

  /** The view is kept in the address. */
  keep<K extends Kept>(name: K, value: KernelState[K]): void {
    this.state[name] = value;
    if (name === "panels") panels = value as PanelState;
    if (name !== "view") return;
    clearTimeout(this.address);
    this.address = window.setTimeout(() => this.keepInAddress(value as ViewState), 50);
  }

  ask(message: Asked): Promise<Answer> {
    const words = `A report shows a session as it was. To ${message.type.replace("-", " ")}, open the model with fxlab.inspect.`;
    return Promise.reject(new Error(words));
  }

  /** An address says nothing of the groups that a first view has open. */
  private keepInAddress(view: ViewState): void {
    if (this.closed.signal.aborted) return;
    const { names, alone } = this.state.stages;
    const usual = this.data.graphs[alone[names.length - 1]!]?.opened ?? [];
    const isUsual = [...usual].sort().join("\n") === [...(view.opened ?? usual)].sort().join("\n");
    const fields = fragmentOf({ ...view, opened: isUsual ? null : view.opened });
    const fragment = [this.graph && `graph=${this.graph}`, fields].filter(Boolean).join("&");
    if (fragment === location.hash.replace(/^#/, "")) return;
    const address = fragment ? `#${fragment}` : location.pathname + location.search;
    try {
      history.replaceState(history.state, "", address);
    } catch {
      // Where a browser keeps nothing, the report is read as well.
    }
  }

  /** Returns the view that the address holds; null after it was said that it holds none. */
  private viewOfAddress(): ViewState | null {
    try {
      const parts = partsOf(location.hash);
      const view = viewOf(parts.graph === this.graph ? parts.view : location.hash);
      const last = this.state.stages.names.length - 1;
      if (Math.max(view.stage ?? 0, Number(view.compared) || 0) > last)
        throw new Error(`This report has the stages 0 to ${last}.`);
      return view;
    } catch (error) {
      const title = "The address holds no view of this report";
      const text = `${error instanceof Error ? error.message : String(error)} The link is ignored.`;
      this.state.status = { busy: null, error: { number: -Date.now(), title, text } };
      return null;
    }
  }
}
