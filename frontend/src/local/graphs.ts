/** The graphs of a report: of a stage, of two stages as one, or of two side by side. */

import { Counterparts } from "./counterparts";
import type { GraphData, PairData, SessionData } from "./data";
import { Panes } from "./panes";
import { Scene } from "./scene";

export class Graphs {
  /** Those that were shown before. */
  private readonly known = new Map<GraphData | PairData, Pick<Panes, "scene" | "beside">>();

  constructor(private readonly data: SessionData) {}

  /** Returns the graph of a stage, or of two as one. */
  graphOf(stage: number, before: number | null): GraphData {
    const graph = this.data.graphs.find((other) => other.stage === stage && other.before === before);
    if (!graph)
      throw new Error(
        before === null
          ? `There is no stage ${stage}.`
          : `This report does not compare stage ${stage} with ${before}.`,
      );
    return graph;
  }

  panesOf(what: GraphData | PairData, opened: Iterable<string>): Panes {
    let known = this.known.get(what);
    if (!known)
      this.known.set(
        what,
        (known = "looks" in what ? this.pairOf(what) : { scene: new Scene(this.data, what), beside: null }),
      );
    return new Panes(this.data.metrics, known.scene, known.beside, new Set(opened));
  }

  private pairOf({
    stage,
    before,
    signatures,
    looks,
    counterparts,
  }: PairData): Pick<Panes, "scene" | "beside"> {
    const scene = new Scene(this.data, this.graphOf(stage, null), signatures, looks[0]);
    const other = new Scene(this.data, this.graphOf(before, null), signatures, looks[1]);
    return { scene, beside: { scene: other, counterparts: new Counterparts(other, scene, counterparts) } };
  }

  /** Returns the graphs of two stages side by side, if the report has them. */
  pair(stage: number, before: number | null): PairData | undefined {
    return this.data.pairs.find((other) => other.stage === stage && other.before === before);
  }

  /** Returns the stages that a stage can be compared with. */
  comparisons(stage: number): number[] {
    return this.data.pairs.filter((pair) => pair.stage === stage).map((pair) => pair.before);
  }
}
