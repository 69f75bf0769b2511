/** The overlay that colours the graphs on the screen, and its values, which may have to be measured. */

import type { Overlay, State } from "../base/protocol";
import type { Data } from "./graphs/data";
import type { Graphs } from "./graphs/graphs";
import type { Kernel } from "./kernels/kernel";
import { Group } from "./graphs/hierarchy";
import type { Pane, Panes } from "./graphs/panes";
import type { Scene } from "./graphs/scene";
import type { Cell, OverlayData } from "../base/wire";

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

const MIXED = "mixed";

/** Returns an overlay, measured on the nodes of `measured`, for the boxes that are visible. */
export function overlayOn(data: OverlayData, measured: Scene, { scene, view }: Pane): Overlay {
  const { combine, numeric } = data;
  const valueOf = new Map(measured.hierarchy.nodes.map(({ name }, i) => [name, data.values[i] ?? null]));
  const values: Record<string, Cell> = {};
  for (const item of [...view.clusters, ...view.boxes]) {
    const nodes = item instanceof Group ? scene.hierarchy.nodesIn(item) : item.facts;
    const value = combined(
      nodes.map(({ name }) => valueOf.get(name) ?? null),
      combine,
      numeric,
    );
    const found = (item instanceof Group ? data.groups?.[item.path] : undefined) ?? value;
    if (found !== null) values[item.id] = found;
  }
  // Modules may have values of their own, which are not those of their nodes.
  return { ...data, values, total: data.groups?.[""] ?? combined(data.values, combine, numeric) };
}

/** Returns the value of a box that draws several nodes, as `fxlab.overlays.Overlay.of` does. */
function combined(values: Cell[], how: "sum" | "max", numeric: boolean): Cell {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return null;
  // Numbers that JSON does not have are texts too.
  if (!numeric && known.some((value) => typeof value === "string"))
    return new Set(known.map(String)).size === 1 ? known[0]! : MIXED;
  const numbers = known.map((value) =>
    value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value),
  );
  const result =
    how === "sum" ? numbers.reduce((sum, value) => sum + value, 0) : numbers.reduce((a, b) => Math.max(a, b));
  return Number.isFinite(result) ? result : String(result).replace("Infinity", "inf").toLowerCase();
}
