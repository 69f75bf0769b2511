/** The tree of a graph with what views look up in it; it is built by `fxlab.drawing.hierarchy`. */

import type { Data, Facts } from "./data";
import type { GroupData, WrittenGraph as GraphData } from "../../base/wire";

/** Columns of a training step, from left to right; the output stands below them. */
export const [FORWARD, BACK, UPDATE, BELOW] = [0, 1, 2, 3];
const BACKWARD = " (backward)";

const HOSTS: ReadonlySet<string> = new Set(["placeholder", "output"]);

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

  /** Of bookkeeping: the input or output that it is drawn with, if there is one. */
  get host(): Leaf | null {
    if (this.data.kind !== "bookkeeping") return null;
    const ends = [this.children[0], this.children.at(-1)];
    return ends.find((end): end is Leaf => end instanceof Leaf && HOSTS.has(end.facts[0]?.op ?? "")) ?? null;
  }

  /** The name of the module that it shows. */
  get moduleName(): string {
    return this.data.kind === "bookkeeping" ? "" : this.data.label;
  }

  /** Whether what is in it has not arrived yet. */
  get isMissing(): boolean {
    return this.data.children === null;
  }
}

export class Leaf {
  constructor(
    readonly id: string,
    readonly look: number,
    /** Of the node, and of those that are drawn with it. */
    readonly facts: Facts[],
    readonly parent: Group,
    readonly position: number,
    private readonly label: string,
  ) {}

  get moduleName(): string {
    return this.label === this.name ? "" : this.label;
  }

  get name(): string {
    return this.facts[0]?.name ?? "";
  }

  get names(): string[] {
    return this.facts.map(({ name }) => name);
  }
}

export class Hierarchy {
  readonly root: Group;
  readonly groups = new Map<string, Group>();
  /** By position; one that has not arrived yet stands for nothing. */
  readonly leaves: Leaf[] = [];
  /** Name of a node -> the leaf that draws it. */
  readonly leafOf = new Map<string, Leaf>();
  /** What is known of the nodes, in the order of the graph. */
  readonly nodes: Facts[];
  isComplete = true;
  private readonly placed: [place: number, facts: Facts][] = [];
  private places = 0;
  private names = 0;

  /** `looks` are others than those that are written in the tree, by their place in it. */
  constructor(
    readonly data: GraphData,
    private readonly parts: Pick<Data, "trees" | "leaves" | "facts" | "look">,
    private readonly looks: Record<number, number>,
  ) {
    this.root = this.group(parts.trees[data.tree]!, null);
    this.nodes = this.placed.sort(([a], [b]) => a - b).map(([, facts]) => facts);
  }

  /** The groups around a node, outermost first, without the root and one whose box bears the node's name. */
  around(name: string): Group[] {
    const chain: Group[] = [];
    const leaf = this.leafOf.get(name);
    for (let group = leaf?.parent ?? null; group?.parent; group = group.parent)
      if (group.host !== leaf) chain.unshift(group);
    return chain;
  }

  /** Returns the children of the root in a column of a step. */
  column(number: number): (Group | Leaf)[] {
    const { columns } = this.data;
    return columns ? this.root.children.filter((_, place) => columns.of[place] === number) : [];
  }

  /** A box of a step's forward pass -> that of its backward pass; as in `fxlab.drawing.hierarchy.hierarchy`. */
  get partners(): Map<Group | Leaf, Group | Leaf> {
    return (this.backward ??= this.alike(FORWARD, BACK));
  }

  /** A box of a step's backward pass -> that of the optimizer for the same module. */
  get updates(): Map<Group | Leaf, Group | Leaf> {
    return (this.updating ??= this.alike(BACK, UPDATE));
  }

  /** Returns the group of the other pass of a module, which opens and closes with it once it has arrived. */
  opensWith(group: Group): Group[] {
    if (!this.opening) {
      this.opening = new Map();
      for (const [here, there] of this.partners)
        if (here instanceof Group && there instanceof Group) this.opening.set(here, there).set(there, here);
    }
    return [this.opening.get(group) ?? []].flat().filter(({ isMissing }) => !isMissing);
  }

  private backward: Map<Group | Leaf, Group | Leaf> | null = null;
  private updating: Map<Group | Leaf, Group | Leaf> | null = null;
  private opening: Map<Group, Group> | null = null;

  /** Returns the boxes of two columns that show the same module in the same place. */
  private alike(left: number, right: number): Map<Group | Leaf, Group | Leaf> {
    const found = new Map<Group | Leaf, Group | Leaf>();
    const others = this.column(right);
    const inside = others.flatMap((item) => (item instanceof Group ? item.children : []));
    const pending = [[this.column(left), right === UPDATE ? inside : others] as const];
    for (let pair = pending.pop(); pair; pair = pending.pop()) {
      const byName = new Map([...pair[1]].reverse().map((item) => [item.moduleName, item]));
      byName.delete("");
      for (const item of pair[0]) {
        const name = item.moduleName;
        const end = name.endsWith(BACKWARD) ? -BACKWARD.length : name.length;
        const other = byName.get(right === BACK ? name + BACKWARD : name.slice(0, end));
        if (!other) continue;
        found.set(item, other);
        if (item instanceof Group && other instanceof Group) pending.push([item.children, other.children]);
      }
    }
    return found;
  }

  nodesIn({ start, stop }: Group): Facts[] {
    return this.leaves.slice(start, stop).flatMap((leaf) => leaf.facts);
  }

  private group(data: GroupData, parent: Group | null): Group {
    const group = new Group(data, this.look(data.closed), this.look(data.opened), parent);
    this.groups.set(group.path, group);
    group.start = this.leaves.length;
    for (const child of data.children ?? []) {
      group.children.push(
        Array.isArray(child) ? this.leaf(...child, group) : this.group(this.parts.trees[child]!, group),
      );
    }
    if (group.isMissing) this.leaveRoom(group);
    group.stop = this.leaves.length;
    return group;
  }

  private leaveRoom(group: Group): void {
    this.isComplete = false;
    this.names += group.data.count;
    for (let i = 0; i < group.data.size; i += 1) {
      const position = this.leaves.length;
      this.leaves.push(new Leaf(`n-${position}`, -1, [], group, position, ""));
    }
  }

  private leaf(number: number, look: number, parent: Group): Leaf {
    const [id, ...rows] = this.parts.leaves[number]!;
    const facts = rows.map((row) => this.parts.facts(row));
    const label = this.parts.look(look)?.label ?? "";
    const leaf = new Leaf(id, this.look(look), facts, parent, this.leaves.length, label);
    this.leaves.push(leaf);
    for (const node of facts) {
      this.leafOf.set(node.name, leaf);
      this.placed.push([this.data.order[this.names]!, node]);
      this.names += 1;
    }
    return leaf;
  }

  private look(written: number): number {
    const look = this.looks[this.places] ?? written;
    this.places += 1;
    return look;
  }
}
