/** The tree of a graph with what views look up in it; the twin of `fxlab.drawing.hierarchy.hierarchy`. */

import type { GraphData, GroupData, LeafData, SessionData } from "./data";

export class Group {
  readonly children: (Group | Leaf)[] = [];
  start = 0;
  stop = 0;

  constructor(
    readonly data: GroupData,
    readonly closed: number,
    readonly opened: number,
    readonly parent: Group | null,
  ) {}

  get id(): string {
    return this.data.id;
  }

  get path(): string {
    return this.data.path;
  }
}

export class Leaf {
  constructor(
    readonly id: string,
    readonly look: number,
    readonly names: string[],
    readonly parent: Group,
    readonly position: number,
  ) {}

  get name(): string {
    return this.names[0]!;
  }
}

export class Hierarchy {
  readonly root: Group;
  readonly groups = new Map<string, Group>();
  readonly leaves: Leaf[] = [];
  /** Name of a node -> the leaf that draws it. */
  readonly leafOf = new Map<string, Leaf>();
  private places = 0;

  /** `looks` are others than those that are written in the tree, by their place in it. */
  constructor(
    readonly data: GraphData,
    private readonly parts: Pick<SessionData, "trees" | "leaves">,
    private readonly looks: Record<number, number>,
  ) {
    this.root = this.group(parts.trees[data.tree]!, null);
  }

  /** The groups around a node, outermost first, without the root. */
  around(name: string): Group[] {
    const chain: Group[] = [];
    for (let group = this.leafOf.get(name)?.parent ?? null; group?.parent; group = group.parent)
      chain.unshift(group);
    return chain;
  }

  private group(data: GroupData, parent: Group | null): Group {
    const group = new Group(data, this.look(data.closed), this.look(data.opened), parent);
    this.groups.set(group.path, group);
    group.start = this.leaves.length;
    for (const child of data.children) {
      const isLeaf = Array.isArray(child);
      group.children.push(
        isLeaf
          ? this.leaf(this.parts.leaves[child[0]]!, child[1], group)
          : this.group(this.parts.trees[child]!, group),
      );
    }
    group.stop = this.leaves.length;
    return group;
  }

  private leaf([id, ...names]: LeafData, look: number, parent: Group): Leaf {
    const leaf = new Leaf(id, this.look(look), names, parent, this.leaves.length);
    this.leaves.push(leaf);
    for (const name of names) this.leafOf.set(name, leaf);
    return leaf;
  }

  private look(written: number): number {
    const look = this.looks[this.places] ?? written;
    this.places += 1;
    return look;
  }
}
