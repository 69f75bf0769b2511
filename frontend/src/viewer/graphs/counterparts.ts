/** What stands for a node in the other stages of a row. */

import type { Scene } from "./scene";

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
