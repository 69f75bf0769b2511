/** The graphs that have arrived, ready to be shown: one, or several in a row. */

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

type Table = Map<string, string[]>;

export class Counterparts {
  /** For each stage and the next: what stands for a node of the later one in the earlier, and the other way. */
  private readonly steps: { back: Table; forth: Table }[];

  /**
   * `stages` go from the earliest on. For each but the first, `renamed` has what nodes stand for in the one before, by
   * position, where it is not the node of the same name alone.
   */
  constructor(stages: Pick<Scene, "nodes">[], renamed: Record<number, number[]>[]) {
    this.steps = renamed.map((others, i) => step(stages[i]!, stages[i + 1]!, others));
  }

  /** Returns what stands for nodes of one stage in another, by their places in the row; first what has kept its name. */
  of(names: string[], from: number, to: number): string[] {
    const path =
      from < to
        ? this.steps.slice(from, to).map(({ forth }) => forth)
        : this.steps
            .slice(to, from)
            .reverse()
            .map(({ back }) => back);
    let found = names;
    for (const table of path) found = [...new Set(found.flatMap((name) => table.get(name) ?? []))];
    const asked = new Set(names);
    return [...found.filter((name) => asked.has(name)), ...found.filter((name) => !asked.has(name))];
  }
}

function step(
  before: Pick<Scene, "nodes">,
  after: Pick<Scene, "nodes">,
  renamed: Record<number, number[]>,
): { back: Table; forth: Table } {
  const [back, forth, names]: [Table, Table, string[]] = [new Map(), new Map(), [...before.nodes.keys()]];
  [...after.nodes.keys()].forEach((name, position) => {
    const others = renamed[position]?.map((other) => names[other]!) ?? (before.nodes.has(name) ? [name] : []);
    back.set(name, others);
    for (const other of others) forth.set(other, [...(forth.get(other) ?? []), name]);
  });
  return { back, forth };
}
