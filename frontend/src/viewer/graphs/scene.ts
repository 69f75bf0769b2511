/** One graph, with what is looked up in it; made when it is first shown. */

import { addTo, numberOf } from "../../base/format";
import type { Data, Facts } from "./data";
import { Hierarchy, type Leaf } from "./hierarchy";
import { Search } from "../search/search";
import type { Pass, WrittenGraph as GraphData } from "../../base/wire";

export class Scene {
  readonly hierarchy: Hierarchy;
  readonly nodes: Map<string, Facts>;
  private found: Search | null = null;
  private readers: Map<string, string[]> | null = null;

  /** `looks` are those that are others than in the graph alone, and `signatures` what their marks mean. */
  constructor(
    private readonly data: Data,
    /** The number of the graph. */
    readonly number: number,
    private readonly passes: () => readonly Pass[],
    readonly signatures: string[] = data.graphs[number]!.signatures,
    looks: Record<number, number> = {},
  ) {
    this.hierarchy = new Hierarchy(this.graph, data, looks);
    this.nodes = new Map(this.hierarchy.nodes.map((node) => [node.name, node]));
  }

  get graph(): GraphData {
    return this.data.graphs[this.number]!;
  }

  /** The numbers of the passes that the marks stand for: those of their stages. */
  get numbers(): (number | null)[] {
    const stages = new Map(this.passes().map(({ signature, stage }) => [signature, stage]));
    return this.signatures.map((signature) => stages.get(signature) ?? null);
  }

  get search(): Search {
    const { hierarchy, data, passes } = this;
    const errors = (): (number | null)[] | null => {
      const overlay = data.overlays.findLast(
        ({ graph, name }) => graph === this.number && name === "output-error",
      );
      return overlay ? overlay.values.map(numberOf) : null;
    };
    this.found ??= new Search({ hierarchy, frames: data.frames, passes, errors });
    return this.found;
  }

  get marked(): string[] {
    return this.hierarchy.leaves
      .filter((leaf) => this.marksOf(leaf).length > 0)
      .flatMap((leaf) => leaf.names);
  }

  marksOf({ look }: Leaf): number[] {
    return this.data.look(look)?.marks ?? [];
  }

  usersOf(name: string): string[] {
    if (!this.readers) {
      this.readers = new Map();
      for (const node of this.hierarchy.nodes)
        for (const input of new Set(node.inputs)) addTo(this.readers, input, node.name);
    }
    return this.readers.get(name) ?? [];
  }
}
