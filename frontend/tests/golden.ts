/// <reference types="vite/client" />
/** The golden vectors that `tests/golden/make.py` writes: graphs as data, and what Python says of them. */

import { Data } from "../src/viewer/graphs/data";
import type { Group, Leaf } from "../src/viewer/graphs/hierarchy";
import type { Hierarchy } from "../src/viewer/graphs/hierarchy";
import type { Cell, DataPart, Pass, StagesKnown } from "../src/base/wire";

export interface Step {
  do: string;
  part: DataPart;
  stages: StagesKnown;
  /** Where the session has changed. */
  passes?: Pass[];
}

/** What of a graph is visible. Boxes are numbers of leaves, and of groups after a `g`. */
export interface GoldenView {
  opened: string;
  boxes: string;
  clusters: string;
  edges: string;
  chips: Record<string, string>;
  outline: string;
  /** The looks of lines and their legend, for each thing that they are drawn by. */
  lines: string[];
}

export interface Vectors {
  steps: Step[];
  graphs: { graph: number; views: GoldenView[] }[];
  pair: { pair: number; sides: [GoldenView, GoldenView]; counterparts: string[][] };
  overlays: { name: string; values: Record<string, Cell>; total: Cell }[];
  /** The lines that outlines begin with. */
  heads: { direction: "down" | "right"; shapes: boolean; head: string[] }[];
  hierarchies: [
    {
      overview: string;
      walks: [opened: string, closed: string][];
      closed: string[];
      /** What is opened for nodes that passes have changed, in the overview and where all is closed. */
      revealed: [overview: string, closed: string];
    },
  ];
  lines: string[];
}

const texts = import.meta.glob<string>("../../tests/golden/*.json", {
  query: "?raw",
  import: "default",
  eager: true,
});

export const MODELS = Object.keys(texts)
  .map((path) => path.split("/").at(-1)!.replace(".json", ""))
  .filter((name) => !["queries", "numbers", "found"].includes(name));

/** Numbers, their units, and how Python writes them. */
export const { numbers: NUMBERS } = JSON.parse(texts["../../tests/golden/numbers.json"]!) as {
  numbers: [value: number, unit: string, text: string][];
};

/** Returns the vectors of a model, anew each time. */
export function vectorsOf(name: string): Vectors {
  return JSON.parse(texts[`../../tests/golden/${name}.json`]!) as Vectors;
}

export const QUERIES = JSON.parse(texts["../../tests/golden/queries.json"]!) as {
  all: string[];
  few: string[];
};

/** What each query finds, by model and graph. Nothing writes it anew: a change is checked by hand. */
export const FOUND = JSON.parse(texts["../../tests/golden/found.json"]!) as Record<
  string,
  Record<number, (string | { error: string })[]>
>;

/** Returns all that a page has received after the last step. */
export function dataOf({ steps }: Vectors): Data {
  const data = new Data();
  for (const { part } of steps) data.add(part);
  return data;
}

export function passesOf({ steps }: Vectors): Pass[] {
  return steps.findLast(({ passes }) => passes)!.passes!;
}

/** Reads numbers, those that follow one another as in `3-7`. */
export function numbersIn(ranges: string): number[] {
  return ranges
    .split(" ")
    .filter(Boolean)
    .flatMap((range) => {
      const [first, last = first] = range.split("-").map(Number) as [number, number?];
      return Array.from({ length: last - first + 1 }, (_, i) => first + i);
    });
}

/** Paths of the groups in the order of the tree, by which they are numbered; the root is the first. */
export function pathsOf({ groups }: Hierarchy): string[] {
  return [...groups.keys()];
}

export function shortName(item: Group | Leaf, paths: string[]): string {
  return "path" in item ? `g${paths.indexOf(item.path)}` : String(item.position);
}
