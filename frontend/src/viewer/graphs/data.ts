/** What is known of the graphs, as `fxlab/view_model/graph_data` writes it: parts that add to one another. */

import type { CodeLine } from "../../base/protocol";
import type {
  DataPart,
  Extra,
  FactRow,
  GroupData,
  Look,
  Metrics,
  OverlayData,
  Paints,
  Remarks,
  SourceFrame,
  WrittenCode,
  WrittenDifference,
  WrittenGraph as GraphData,
  WrittenLeaf as LeafData,
  WrittenLine,
  WrittenPair as PairData,
} from "../../base/wire";

/** A look as it is written: where it is like an earlier one, what is different. */
type WrittenLook = Look | (Partial<Look> & { like: number });

/** What is known of a node without asking for its details. */
export interface Facts {
  name: string;
  op: string;
  target: string;
  /** Path of the module that it belongs to, and its class. */
  module: string;
  owner: string;
  /** The classes of all modules around it, and that of the module that it calls. */
  classes: string;
  values: { shape: string; dtype: string }[];
  /** Numbers of the lines of source that made it, innermost first. */
  frames: number[];
  /** Names of the nodes that it reads. */
  inputs: string[];
  /** Signatures of the passes that changed it. */
  marks: string[];
  /** How many elements its parameters have. */
  parameters: number;
  /** Names of the arguments that it is given. */
  args: string;
}

const LISTS = [
  ...(["frames", "extras", "trees", "leaves"] as const),
  ...(["overlays", "pairs", "codes", "codeDifferences"] as const),
];

/** All that has arrived. */
export class Data {
  readonly frames: SourceFrame[] = [];
  private readonly looks: Look[] = [];
  /** Looks that hold for graphs between two others, numbered from -2 down. */
  private readonly joinedLooks: Look[] = [];
  readonly extras: Extra[] = [];
  readonly trees: GroupData[] = [];
  readonly leaves: LeafData[] = [];
  readonly graphs: GraphData[] = [];
  readonly pairs: PairData[] = [];
  readonly overlays: OverlayData[] = [];
  readonly codes: WrittenCode[] = [];
  readonly codeDifferences: WrittenDifference[] = [];
  readonly layouts: Record<string, string> = {};
  metrics!: Metrics;
  paints!: Paints;
  remarks: Remarks = { about: "", remarks: [] };
  matches: Record<string, string[]> = {};
  /** Numbers of graphs of which groups have arrived late, until somebody has looked at them anew. */
  readonly filled = new Set<number>();
  private readonly texts: string[] = [];
  private readonly rows: FactRow[] = [];
  private readonly read: Facts[] = [];
  private readonly codeLines: WrittenLine[] = [];
  private readonly readLines: CodeLine[] = [];

  add(part: DataPart): void {
    append(this.texts, part.texts);
    append(this.rows, part.facts);
    append(this.codeLines, part.codeLines);
    for (const name of LISTS) append<unknown>(this[name], part[name]);
    for (const look of part.looks as WrittenLook[])
      this.looks.push("like" in look ? { ...this.looks[look.like]!, ...look } : look);
    for (const graph of part.graphs)
      this.graphs.push({
        ...graph,
        order: summed(graph.order),
        sources: summed(graph.sources),
        targets: summed(graph.targets),
        asides: summed(graph.asides),
        ...(graph.columns && { columns: { ...graph.columns, told: summed(graph.columns.told) } }),
      });
    for (const [graph, place, tree] of part.filled) {
      this.trees[place] = this.trees[tree]!;
      this.filled.add(graph);
    }
    Object.assign(this.layouts, part.layouts);
    if (part.metrics) this.metrics = part.metrics;
    if (part.paints) this.paints = part.paints;
    if (part.remarks) this.remarks = part.remarks;
    if (part.matches) this.matches = part.matches;
  }

  /** Returns a look by its number; those of boxes that have not arrived have none. */
  look(number: number): Look | undefined {
    return number < -1 ? this.joinedLooks[-2 - number] : this.looks[number];
  }

  /** Returns looks by their places, where several hold with the marks of all of them. */
  joined(tables: Record<number, number>[]): Record<number, number> {
    const [first = {}, second = {}] = tables;
    const both = Object.keys(first).map(Number);
    return {
      ...first,
      ...second,
      ...Object.fromEntries(
        both.flatMap((place) => (place in second ? [[place, this.join(first[place]!, second[place]!)]] : [])),
      ),
    };
  }

  /** A group counts what differs from the one from which more does. */
  private join(a: number, b: number): number {
    if (a === b) return a;
    const [more, less] = [this.look(a)!, this.look(b)!].sort((one, other) => other.changed - one.changed);
    this.joinedLooks.push({
      ...more!,
      marks: [...new Set([...more!.marks, ...less!.marks])].sort(),
      classes: [...new Set(`${more!.classes} ${less!.classes}`.split(" "))].join(" "),
    });
    return -1 - this.joinedLooks.length;
  }

  facts(row: number): Facts {
    return (this.read[row] ??= this.factsOf(this.rows[row]!));
  }

  /** A line of code; those of two stages that are equal are one. */
  codeLine(number: number): CodeLine {
    const [text, ...names] = this.codeLines[number]!;
    return (this.readLines[number] ??= { text, nodes: names.map((name) => this.texts[name]!) });
  }

  private factsOf(row: FactRow): Facts {
    const { texts } = this;
    const [name, op, target, module, owner, classes, values, frames, inputs, marks, parameters, args] = row;
    const results: Facts["values"] = [];
    for (let i = 0; i < values.length; i += 2)
      results.push({ shape: texts[values[i]!]!, dtype: texts[values[i + 1]!]! });
    return {
      name: texts[name]!,
      op: texts[op]!,
      target: texts[target]!,
      module: texts[module]!,
      owner: texts[owner]!,
      classes: texts[classes]!,
      values: results,
      frames,
      inputs: inputs.map((number) => texts[number]!),
      marks: marks.map((number) => texts[number]!),
      parameters,
      args: texts[args]!,
    };
  }
}

/** As `push(...items)`, which has too many arguments where there are many items. */
function append<T>(list: T[], items: readonly T[]): void {
  for (const item of items) list.push(item);
}

function summed(steps: number[]): number[] {
  let sum = 0;
  return steps.map((step) => (sum += step));
}
