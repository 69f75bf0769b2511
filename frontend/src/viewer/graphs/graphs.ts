/** The graphs that have arrived, ready to be shown: one, or several in a row. */

import { Counterparts } from "./counterparts";
import type { Data } from "./data";
import { Panes, type Opened } from "./panes";
import { Scene } from "./scene";
import type { Pass } from "../../base/wire";

/** The number of a graph; or those of pairs, each of a stage and the next in a row. */
export type Place = number | number[];

type Shown = Pick<Panes, "scenes" | "counterparts">;

export class Graphs {
  private readonly scenes = new Map<number, Scene>();
  private readonly rows = new Map<string, Shown>();

  constructor(
    private readonly data: Data,
    private readonly passes: () => readonly Pass[],
  ) {}

  scene(number: number): Scene {
    let scene = this.scenes.get(number);
    if (!scene) this.scenes.set(number, (scene = new Scene(this.data, number, this.passes)));
    return scene;
  }

  panesOf(place: Place, opened: Opened): Panes {
    const { scenes, counterparts } =
      typeof place === "number" ? { scenes: [this.scene(place)], counterparts: null } : this.row(place);
    return new Panes(this.data.metrics, scenes, counterparts, opened);
  }

  /** Reads graphs anew of which more has arrived; returns whether there are any. */
  renew(): boolean {
    const { filled } = this.data;
    if (filled.size === 0) return false;
    for (const number of filled) this.scenes.delete(number);
    this.rows.clear();
    filled.clear();
    return true;
  }

  private row(numbers: number[]): Shown {
    const key = numbers.join();
    const known = this.rows.get(key);
    if (known) return known;
    const { data } = this;
    const pairs = numbers.map((number) => data.pairs[number]!);
    const graphs = [pairs[0]!.before, ...pairs.map(({ after }) => after)];
    const stages = graphs.map((graph, i) => {
      // A graph between two others is marked with what differs from either.
      const looks = data.joined(
        [pairs[i - 1]?.looks[0], pairs[i]?.looks[1]].filter((some) => some !== undefined),
      );
      return new Scene(data, graph, this.passes, pairs[0]!.signatures, looks);
    });
    const made: Shown = {
      scenes: [stages.at(-1)!, ...stages.slice(0, -1)],
      counterparts: new Counterparts(
        stages,
        pairs.map(({ counterparts }) => counterparts),
      ),
    };
    this.rows.set(key, made);
    return made;
  }
}
