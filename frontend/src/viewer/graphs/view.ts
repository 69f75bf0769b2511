/** What of a graph is visible: boxes, edges and chips, as in `fxlab.drawing.view`. */

import { BACK, FORWARD, Group, UPDATE, type Hierarchy, type Leaf } from "./hierarchy";
import type { Metrics } from "../../base/wire";
import { addTo } from "../../base/format";

/** Boxes without a line that stand side by side. */
const LONELY_BESIDE = 4;

export interface Chip {
  source: Leaf;
  /** The visible box in which it is made; for a reference, the one at the other end. */
  box: Group | Leaf;
  /** Of a reference, in place of a line to another column: what the other end is of that line. */
  end?: "source" | "target";
}

export interface VisibleEdge {
  source: Group | Leaf;
  target: Group | Leaf;
  leaves: Leaf[];
  /** Whether it is on the path through the boxes that hold the most nodes. */
  isMain: boolean;
}

export class View {
  /** Visible boxes in the order of the tree. */
  readonly boxes: (Group | Leaf)[] = [];
  /** Opened groups, outer ones first. */
  readonly clusters: Group[] = [];
  readonly edges: VisibleEdge[] = [];
  /** Places of the boxes with which the columns of a large picture begin; the twin of `View.parts`. */
  readonly parts = [0];
  /** Id of a visible box -> the far values that it reads, and references to boxes of other columns. */
  readonly chips = new Map<string, Chip[]>();

  constructor(
    readonly hierarchy: Hierarchy,
    private readonly opened: Pick<ReadonlySet<string>, "has">,
    readonly metrics: Metrics,
  ) {
    this.walk(hierarchy.root);
    this.connect(metrics);
  }

  isCluster(item: Group | Leaf): boolean {
    return item instanceof Group && this.opened.has(item.path);
  }

  /** Id of the visible box that draws a node. */
  boxOf(name: string): string | null {
    const leaf = this.hierarchy.leafOf.get(name);
    return leaf ? this.boxes[this.boxAt[leaf.position]!]!.id : null;
  }

  /** Returns the column of a step in which a visible item stands; that of all of other graphs. */
  columnOf(item: Group | Leaf): number {
    const { data, root } = this.hierarchy;
    if (!data.columns) return FORWARD;
    let top = item;
    while (top.parent && top.parent !== root) top = top.parent;
    return data.columns.of[root.children.indexOf(top)]!;
  }

  /** Whether a line is of values that a step keeps for its backward pass. */
  isSaved({ source, target }: VisibleEdge): boolean {
    return this.columnOf(source) === FORWARD && this.columnOf(target) === BACK;
  }

  /** Of a step: boxes that stand at the same height, one left of the other; the twin of `View.level`. */
  get level(): [left: Group | Leaf, right: Group | Leaf][] {
    const { hierarchy } = this;
    const pairs: [Group | Leaf, Group | Leaf][] = [];
    const seen = new Set<Group | Leaf>([...this.boxes, ...this.clusters]);
    const pair = (items: (Group | Leaf)[], partners: Map<Group | Leaf, Group | Leaf>): void => {
      for (const item of items) {
        const [other, before] = [partners.get(item), pairs.length];
        if (item instanceof Group && this.isCluster(item)) pair(item.children, partners);
        if (pairs.length === before && other && seen.has(other))
          pairs.push([this.middleOf(item), this.middleOf(other)]);
      }
    };
    for (const number of [BACK, UPDATE]) {
      const column = this.boxes.filter((box) => this.columnOf(box) === number);
      if (column.length === 0) continue;
      const before = pairs.length;
      pair(hierarchy.column(number - 1), number === BACK ? hierarchy.partners : hierarchy.updates);
      if (pairs.length > before) continue;
      const left = this.boxes.filter((box) => this.columnOf(box) === number - 1);
      const calls = left.filter((box) => box instanceof Group || box.facts[0]?.op !== "placeholder");
      pairs.push(number === BACK ? [calls[0]!, column.at(-1)!] : [left.at(-1)!, column[0]!]);
    }
    return pairs;
  }

  /**
   * Of a step: boxes of the backward pass that stand above others without a line that says so; the twin of
   * `View.above`.
   */
  get above(): [upper: Group | Leaf, lower: Group | Leaf][] {
    const isBack = (item: Group | Leaf): boolean => this.columnOf(item) === BACK;
    const lines = this.edges.filter(({ source, target }) => isBack(source) && isBack(target));
    const read = new Map<Group, Set<Group | Leaf>>();
    for (const { source, target } of lines) {
      const start = source instanceof Group ? source.start : source.position;
      for (let group = target.parent; group?.parent; group = group.parent)
        if (start < group.start || start >= group.stop)
          read.set(group, (read.get(group) ?? new Set()).add(source));
    }
    const fed = new Set(lines.map(({ target }) => target));
    return this.boxes
      .filter((box) => isBack(box) && !fed.has(box))
      .flatMap((box) => {
        let group = box.parent;
        while (group && !read.has(group)) group = group.parent;
        const sources = group ? [...read.get(group)!] : [];
        return sources.map((source): [Group | Leaf, Group | Leaf] => [box, source]);
      });
  }

  /** Returns the box in the middle of an opened group, or a box itself. */
  private middleOf(item: Group | Leaf): Group | Leaf {
    if (!(item instanceof Group && this.isCluster(item))) return item;
    const inside = this.boxes.slice(this.boxAt[item.start]!, this.boxAt[item.stop - 1]! + 1);
    return inside[Math.floor(inside.length / 2)]!;
  }

  private boxAt: number[] = [];
  private partAt: number[] = [];

  private walk(group: Group): void {
    for (const child of group.children) {
      if (child instanceof Group && this.isCluster(child)) {
        this.clusters.push(child);
        this.walk(child);
      } else {
        const [start, stop] =
          child instanceof Group ? [child.start, child.stop] : [child.position, child.position + 1];
        for (let position = start; position < stop; position += 1) this.boxAt[position] = this.boxes.length;
        this.boxes.push(child);
      }
    }
  }

  private connect({ chipReaders, parts }: Metrics): void {
    const { sources, targets, asides } = this.hierarchy.data;
    const { leaves } = this.hierarchy;
    const isFolded = (position: number): boolean => {
      const box = this.boxes[this.boxAt[position]!]!;
      return box instanceof Group && box.data.kind === "bookkeeping";
    };
    // What a closed box of bookkeeping tells of sizes, or asks, would be lines from everywhere to everywhere.
    const hidden = new Set(asides.filter((edge) => isFolded(sources[edge]!) || isFolded(targets[edge]!)));
    for (const edge of this.hierarchy.data.columns?.told ?? []) hidden.add(edge);
    /** Position of a leaf -> numbers of the other boxes that read it. */
    const readers = new Map<number, Set<number>>();
    sources.forEach((source, i) => {
      const reader = this.boxAt[targets[i]!]!;
      if (reader === this.boxAt[source] || hidden.has(i)) return;
      let known = readers.get(source);
      if (!known) readers.set(source, (known = new Set()));
      known.add(reader);
    });
    const edges = new Map<string, VisibleEdge>();
    for (const position of [...readers.keys()].sort((a, b) => a - b)) {
      const leaf = leaves[position]!;
      const box = this.boxes[this.boxAt[position]!]!;
      const reading = [...readers.get(position)!].sort((a, b) => a - b);
      const isFar = reading.length >= chipReaders;
      for (const reader of reading) {
        const target = this.boxes[reader]!;
        if (isFar && reader !== reading[0]) {
          addTo(this.chips, target.id, { source: leaf, box });
          continue;
        }
        const key = `${box.id} ${target.id}`;
        const edge = edges.get(key);
        if (edge) edge.leaves.push(leaf);
        else edges.set(key, { source: box, target, leaves: [leaf], isMain: false });
      }
    }
    this.cut([...edges.values()], parts);
    this.markMainPath();
  }

  /** Cuts a large picture into columns where few lines and opened groups go on; no line leads to another. */
  private cut(lines: VisibleEdge[], [most, shortest, middle, longest]: Metrics["parts"]): void {
    const last = this.boxes.length;
    if (last > most && !this.hierarchy.data.columns) {
      const changes = new Array<number>(last + 1).fill(0);
      const ends = lines.map(({ source, target }) => [this.placeOf(source), this.placeOf(target)]);
      ends.push(...this.clusters.map(({ start, stop }) => [this.boxAt[start]!, this.boxAt[stop - 1]!]));
      for (const pair of ends) {
        changes[Math.min(...pair) + 1]! += 1;
        changes[Math.max(...pair) + 1]! -= 1;
      }
      let sum = 0;
      const goingOn = changes.map((change) => (sum += change));
      for (let start = 0; last - start > longest; this.parts.push(start)) {
        let best = start + shortest;
        const cost = (at: number): [number, number] => [goingOn[at]!, Math.abs(at - start - middle)];
        for (let at = best + 1; at <= start + longest; at += 1) {
          const [[lines, off], [fewest, least]] = [cost(at), cost(best)];
          if (lines < fewest || (lines === fewest && off < least)) best = at;
        }
        start = best;
      }
    }
    this.partAt = this.boxes.map((_, place) => this.parts.findLastIndex((start) => start <= place));
    for (const edge of lines) {
      const { source, target, leaves } = edge;
      if (this.partOf(source) === this.partOf(target)) {
        this.edges.push(edge);
        continue;
      }
      addTo(this.chips, target.id, { source: leaves[0]!, box: source, end: "source" });
      addTo(this.chips, source.id, { source: leaves[0]!, box: target, end: "target" });
    }
  }

  /** The first node of a box. */
  firstIn(box: Group | Leaf): Leaf {
    return this.hierarchy.leaves[box instanceof Group ? box.start : box.position]!;
  }

  private placeOf(item: Group | Leaf): number {
    return this.boxAt[this.firstIn(item).position]!;
  }

  /** The column of a visible box, or the first of an opened group. */
  partOf(item: Group | Leaf): number {
    return this.partAt[this.placeOf(item)]!;
  }

  /** The columns that an opened group is in, each with the id of its piece there. */
  pieces(group: Group): Map<number, string> {
    const [first, last] = [this.partOf(group), this.boxAt[group.stop - 1]!];
    const pieces = new Map([[first, group.id]]);
    for (let part = first + 1; this.parts[part]! <= last; part += 1) pieces.set(part, `${group.id}~${part}`);
    return pieces;
  }

  /** Boxes that stand below one another, as no line says where; the twin of `View.lonely`. */
  get lonely(): [upper: Group | Leaf, lower: Group | Leaf][] {
    const joined = new Set(this.edges.flatMap(({ source, target }) => [source, target]));
    const rows = new Map<string, (Group | Leaf)[]>();
    for (const box of this.boxes)
      if (!joined.has(box)) addTo(rows, `${this.partOf(box)} ${box.parent!.path}`, box);
    return [...rows.values()].flatMap((row) =>
      row.slice(LONELY_BESIDE).map((box, i): [Group | Leaf, Group | Leaf] => [row[i]!, box]),
    );
  }

  private markMainPath(): void {
    const place = new Map(this.boxes.map((box, i) => [box.id, i]));
    const nodes = this.boxes.map((box) => (box instanceof Group ? box.data.count : box.facts.length));
    const most = [...nodes];
    const before = new Map<number, [place: number, edge: VisibleEdge]>();
    const ends = this.edges.map((edge): [number, number, VisibleEdge] => [
      place.get(edge.source.id)!,
      place.get(edge.target.id)!,
      edge,
    ]);
    for (const [source, target, edge] of ends.sort(([a, b], [c, d]) => a - c || b - d)) {
      const along = most[source]! + nodes[target]!;
      if (source >= target || along <= most[target]!) continue;
      most[target] = along;
      before.set(target, [source, edge]);
    }
    let step = before.get(most.indexOf(Math.max(...most)));
    for (; step; step = before.get(step[0])) step[1].isMain = true;
  }
}
