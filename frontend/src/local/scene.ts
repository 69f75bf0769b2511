/** One graph of a report, with what is looked up in it; made when it is first shown. */

import type { BareDetails, GraphData, SessionData } from "./data";
import { Hierarchy, type Group } from "./hierarchy";
import { Search } from "./search/search";

const CHANGED_NODES = "Changed nodes";

export class Scene {
  readonly hierarchy: Hierarchy;
  readonly nodes: Map<string, BareDetails>;
  private found: Search | null = null;

  /** `looks` are those that are others than in the graph alone, and `signatures` what their marks mean. */
  constructor(
    private readonly data: SessionData,
    readonly graph: GraphData,
    readonly signatures: string[] = graph.signatures,
    private readonly looks: Record<number, number> | null = null,
  ) {
    this.hierarchy = new Hierarchy(graph, data, looks ?? {});
    this.nodes = new Map(graph.nodes.map((place) => [data.nodes[place]!.name!, data.nodes[place]!]));
  }

  get search(): Search {
    this.found ??= new Search({
      hierarchy: this.hierarchy,
      nodes: [...this.nodes.values()],
      groups: this.data.groups,
      frames: this.data.frames,
      passes: this.data.passes.passes,
    });
    return this.found;
  }

  /** The names of the nodes that are marked. */
  get marked(): string[] {
    return this.hierarchy.leaves
      .filter((leaf) => this.data.looks[leaf.look]!.changed > 0)
      .flatMap((leaf) => leaf.names);
  }

  /** Returns what is said of a group, under the marks that it has here. */
  detailsOf(group: Group): BareDetails {
    const details = this.data.groups[group.data.details]!;
    if (!this.looks && this.graph.before === null) return details;
    const { changed, marks } = this.data.looks[group.closed]!;
    const fields = details.fields.filter(({ label }) => label !== CHANGED_NODES);
    if (changed > 0) fields.push({ label: CHANGED_NODES, value: changed.toLocaleString("en"), code: false });
    return { ...details, fields, marks: marks.map((mark) => this.signatures[mark]!).sort() };
  }
}
