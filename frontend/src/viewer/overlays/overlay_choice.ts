/** The overlay that colours the graphs on the screen, and its values, which may have to be measured. */

import type { Overlay, State } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type { Graphs } from "../graphs/graphs";
import type { Kernel } from "../kernels/kernel";
import { overlayOn } from "./overlay_on";
import type { Panes } from "../graphs/panes";
import type { OverlayData } from "../../base/wire";

export class OverlayChoice {
  /** Empty for the colours of kinds of nodes. */
  name = "";

  constructor(private readonly kernel: Kernel) {}

  /** Asks for the values on graphs that have none. */
  async measure(graphs: number[]): Promise<void> {
    for (const graph of graphs)
      if (this.isMissing(graph)) {
        await this.kernel.ask({ type: "overlay", graph, name: this.name });
        await this.kernel.ready();
      }
  }

  isMissing(graph: number): boolean {
    const isMeasured = this.name !== "" && !this.kernel.isFixed;
    return isMeasured && !this.valuesOf(this.kernel.data, graph);
  }

  /** Says what is offered, and what is shown; `measured` are the graphs of the stages that are shown. */
  state(data: Data, graphs: Graphs, panes: Panes, measured: number[]): State["overlays"] {
    const shown = measured.map((number, i): Overlay | null => {
      const scene = graphs.scene(number);
      const values = this.valuesOf(data, number);
      return values ? overlayOn(values, scene, panes.all[i]!) : null;
    });
    const [overlay = null, ...beside] = shown.every((one) => one !== null) ? shown : [];
    return { offered: this.offered(data, measured[0]), overlay, beside, paints: data.paints };
  }

  /** A report offers what was measured, a kernel what can be. */
  private offered(data: Data, graph: number | undefined): State["overlays"]["offered"] {
    const known = this.kernel.isFixed
      ? data.overlays.filter((one) => one.graph === graph)
      : this.kernel.state.overlays;
    return known.map(({ name, title }) => ({ name, title }));
  }

  private valuesOf(data: Data, graph: number): OverlayData | undefined {
    return data.overlays.findLast((known) => known.graph === graph && known.name === this.name);
  }
}
