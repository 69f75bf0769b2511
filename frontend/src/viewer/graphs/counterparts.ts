/** What stands for a node in another stage. */

import type { Scene } from "./scene";

export class Counterparts {
  private readonly before = new Map<string, string[]>();
  private readonly after = new Map<string, string[]>();

  /** `renamed` has what nodes stand for, by position, where it is not the node of the same name alone. */
  constructor(before: Pick<Scene, "nodes">, after: Pick<Scene, "nodes">, renamed: Record<number, number[]>) {
    const names = [...before.nodes.keys()];
    [...after.nodes.keys()].forEach((name, position) => {
      const others =
        renamed[position]?.map((other) => names[other]!) ?? (before.nodes.has(name) ? [name] : []);
      this.before.set(name, others);
      for (const other of others) this.after.set(other, [...(this.after.get(other) ?? []), name]);
    });
  }

  /** Returns what stands for nodes of one stage in the other, first what has kept its name. */
  of(names: string[], before: boolean): string[] {
    const table = before ? this.after : this.before;
    const found = [...new Set(names.flatMap((name) => table.get(name) ?? []))];
    const asked = new Set(names);
    return [...found.filter((name) => asked.has(name)), ...found.filter((name) => !asked.has(name))];
  }
}
