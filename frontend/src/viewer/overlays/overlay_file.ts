/** Overlays in a file that somebody gives to the page; the twin of `fxlab.overlays.given.read_overlays`. */

import { objectWith } from "../../base/read_message";
import type { Cell, OverlayData } from "../../base/wire";
import { Group, type Leaf } from "../graphs/hierarchy";
import type { Scene } from "../graphs/scene";
import type { Overlay } from "../../base/protocol";
import type { Pane } from "../graphs/panes";

/** Values and labels by names of nodes, or paths of modules. */
export interface GivenOverlay extends Pick<
  OverlayData,
  "name" | "title" | "unit" | "combine" | "numeric" | "isText"
> {
  values: Map<string, number | string>;
  labels: Map<string, string>;
}

const FIELDS = ["values", "title", "kind", "combine", "unit", "labels"];
const [MOST_OVERLAYS, LONGEST_TITLE, LONGEST_LABEL] = [100, 80, 40];
const MISSING = new Set(["", "#N/A", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]);
const NUMBER = /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i;
const FORM =
  'Write a CSV file whose first column has the names, or JSON such as {"latency": {"encoder": 0.2}}.';

/** Returns the overlays in a file; throws an error that says what is wrong with one that has none. */
export function overlaysIn(file: string, text: string): GivenOverlay[] {
  const suffix = /\.(csv|json)$/i.exec(file)?.[1]?.toLowerCase();
  const name = file.slice(0, 200);
  if (!suffix) throw new Error(`Expected a file that ends in .csv or .json, got ${name}.`);
  try {
    const read = text.replace(/^\ufeff/, "");
    const found = suffix === "csv" ? inTable(rowsOf(read)) : inObject(JSON.parse(read));
    if (found.length === 0 || found.length > MOST_OVERLAYS)
      throw new Error(`it has ${found.length} columns of values`);
    return found;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`${name} is no table of values by node or module (${why}). ${FORM}`);
  }
}

/** Returns an overlay as it is on a graph; throws an error if it is of another. */
export function overlayOfFile(given: GivenOverlay, { number, nodes, hierarchy }: Scene): OverlayData {
  const { name, title, unit, combine, numeric, isText } = given;
  const isCategory = !numeric && !isText;
  const [values, labels]: [GivenOverlay["values"], GivenOverlay["labels"]] = [
    new Map(given.values),
    new Map(given.labels),
  ];
  const called = new Set<string>();
  const counts = new Map<string, number>();
  for (const node of hierarchy.nodes) {
    counts.set(node.module, (counts.get(node.module) ?? 0) + 1);
    const paths = node.op === "call_module" ? [node.target] : [];
    if (isCategory) paths.push(...enclosing(node.module));
    // A cost of a second call would count twice.
    else if (paths.every((path) => called.has(path))) continue;
    for (const path of paths) called.add(path);
    for (const found of [values, labels] as Map<string, unknown>[]) {
      const known = paths.find((path) => found.has(path) && !nodes.has(path));
      if (known !== undefined && !found.has(node.name)) found.set(node.name, found.get(known));
    }
  }
  /** The module that consists of a node alone. */
  const ownerOf = (leaf: Leaf | undefined): string => {
    const module = leaf?.facts[0]?.module ?? "";
    const isAlone = counts.get(module) === 1 && !hierarchy.groups.has(module) && !nodes.has(module);
    return isAlone ? module : "";
  };
  const valueOf = (node: string, owner = ""): Cell => cellOf(values.get(owner) ?? values.get(node));
  const groups: Record<string, Cell> = {};
  const hasOwn = [...hierarchy.groups.keys()].some((path) => given.values.has(path) && !nodes.has(path));
  const valueIn = (item: Group | Leaf): Cell => {
    const all =
      item instanceof Group ? item.children.map(valueIn) : item.facts.map((node) => valueOf(node.name));
    const [own, inside] = [
      item instanceof Group
        ? nodes.has(item.path)
          ? null
          : cellOf(values.get(item.path))
        : valueOf("", ownerOf(item)),
      combined(all, combine, numeric),
    ];
    if (item instanceof Group && hasOwn) groups[item.path] = own ?? inside;
    return own ?? inside;
  };
  if (valueIn(hierarchy.root) === null)
    throw new Error(
      `${title} has no value for any node; expected names of nodes of the graph, or paths of its modules.`,
    );
  const words: Record<string, string> = {};
  for (const item of [...hierarchy.leaves, ...hierarchy.groups.values()]) {
    const names = item instanceof Group ? [item.path] : [ownerOf(item), ...item.names];
    const label = names.map((known) => labels.get(known)).find(Boolean);
    if (label) words[item.id] = label.slice(0, LONGEST_LABEL);
  }
  return {
    ...{ graph: number, name, title, unit, combine, numeric, ...(isText && { isText }) },
    values: hierarchy.nodes.map((node) => {
      const leaf = hierarchy.leafOf.get(node.name);
      return valueOf(node.name, leaf?.name === node.name ? ownerOf(leaf) : "");
    }),
    ...(hasOwn && { groups }),
    ...(labels.size > 0 && { labels: words }),
  };
}

/** Returns the paths around a path, that itself included, innermost first. */
function enclosing(path: string): string[] {
  const parts = path.split(".");
  return parts.map((_, i) => parts.slice(0, parts.length - i).join("."));
}

/** JSON has no infinity, and a page reads it as a word. */
function cellOf(value: number | string | undefined): Cell {
  if (typeof value !== "number") return value ?? null;
  return Number.isFinite(value) ? value : value > 0 ? "inf" : "-inf";
}

function inObject(found: unknown): GivenOverlay[] {
  const overlays = objectWith(found);
  if (!overlays) throw new Error("it has no values by name");
  return Object.entries(overlays).map(([name, value]) => {
    const given = objectWith(value);
    if (!given) throw new Error(`${name.slice(0, LONGEST_TITLE)} has no values by name`);
    const isWhole = objectWith(given["values"]) && Object.keys(given).every((key) => FIELDS.includes(key));
    return isWhole ? overlay(name, given) : overlay(name, { values: given });
  });
}

/** Makes an overlay of the arguments of `fxlab.Overlay`. */
function overlay(name: string, given: Record<string, unknown>): GivenOverlay {
  const { title = name, unit = "", combine = "sum" } = given as Record<string, string>;
  if (typeof title !== "string" || typeof unit !== "string") throw new Error("a title or unit is no text");
  if (combine !== "sum" && combine !== "max") throw new Error(`"combine" is neither "sum" nor "max"`);
  const values = new Map<string, number | string>();
  for (const [key, value] of Object.entries(given["values"] as object)) {
    if (!key) continue;
    if (typeof value === "string" || (typeof value === "number" && !Number.isNaN(value)))
      values.set(key, value);
    else if (typeof value === "boolean") values.set(key, Number(value));
    else if (value !== null && typeof value !== "number")
      throw new Error(`the value of ${key.slice(0, LONGEST_TITLE)} is neither a number nor a text`);
  }
  const word = [...values].find(([, value]) => typeof value === "string");
  const kind = given["kind"] ?? (word ? "category" : "number");
  if (!["number", "category", "text"].includes(kind as string))
    throw new Error(`"kind" is none of "number", "category" and "text"`);
  if (kind === "number" && word)
    throw new Error(`the value of ${word[0].slice(0, LONGEST_TITLE)} is no number`);
  if (kind !== "number") for (const [key, value] of values) values.set(key, String(value));
  const labels = new Map(kind === "text" ? [...values].map(([key, value]) => [key, String(value)]) : []);
  for (const [key, label] of Object.entries(objectWith(given["labels"] ?? {}) ?? {}))
    labels.set(key, String(label));
  return {
    ...{ name, title: title.slice(0, LONGEST_TITLE), unit, combine, values, labels },
    numeric: kind === "number",
    ...(kind === "text" && { isText: true }),
  };
}

function inTable([head = [], ...rows]: string[][]): GivenOverlay[] {
  const wide = rows.findIndex((row) => row.length > head.length);
  if (wide >= 0) throw new Error(`row ${wide + 2} has more cells than the first`);
  const names = new Set<string>();
  for (const [name = ""] of rows) {
    if (name && names.has(name)) throw new Error(`${name.slice(0, LONGEST_TITLE)} is there more than once`);
    names.add(name);
  }
  return head.slice(1).map((name, i) => {
    const cells = rows.map((row): [string, string] => [row[0]!, row[i + 1] ?? ""]);
    const known = cells.filter(([, cell]) => !MISSING.has(cell));
    const are = (form: RegExp): boolean => known.every(([, cell]) => form.test(cell));
    const read = are(NUMBER)
      ? Number
      : are(/^(true|false)$/i)
        ? (cell: string) => Number(/^t/i.test(cell))
        : (cell: string) => cell;
    return overlay(name, { values: Object.fromEntries(known.map(([key, cell]) => [key, read(cell)])) });
  });
}

/** Returns the rows of a table that are not empty; what is in quotes may have commas, lines and quotes. */
function rowsOf(text: string): string[][] {
  const rows: string[][] = [[]];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|\r|$)/g)) {
    rows.at(-1)!.push(quoted?.replaceAll('""', '"') ?? plain!);
    if (end !== ",") rows.push([]);
  }
  return rows.filter((row) => row.some(Boolean));
}

const MIXED = "mixed";

/** Returns an overlay, measured on the nodes of `measured`, for the boxes that are visible. */
export function overlayOn(data: OverlayData, measured: Scene, { scene, view }: Pane): Overlay {
  const { combine, numeric } = data;
  const valueOf = new Map(measured.hierarchy.nodes.map(({ name }, i) => [name, data.values[i] ?? null]));
  const values: Record<string, Cell> = {};
  for (const item of [...view.clusters, ...view.boxes]) {
    const nodes = item instanceof Group ? scene.hierarchy.nodesIn(item) : item.facts;
    const value = combined(
      nodes.map(({ name }) => valueOf.get(name) ?? null),
      combine,
      numeric,
    );
    const found = (item instanceof Group ? data.groups?.[item.path] : undefined) ?? value;
    if (found !== null) values[item.id] = found;
  }
  // Modules may have values of their own, which are not those of their nodes.
  return { ...data, values, total: data.groups?.[""] ?? combined(data.values, combine, numeric) };
}

/** Returns the value of a box that draws several nodes, as `fxlab.overlays.Overlay.of` does. */
export function combined(values: Cell[], how: "sum" | "max", numeric: boolean): Cell {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length === 0) return null;
  // Numbers that JSON does not have are texts too.
  if (!numeric && known.some((value) => typeof value === "string"))
    return new Set(known.map(String)).size === 1 ? known[0]! : MIXED;
  const numbers = known.map((value) =>
    value === "inf" ? Infinity : value === "-inf" ? -Infinity : Number(value),
  );
  const result =
    how === "sum" ? numbers.reduce((sum, value) => sum + value, 0) : numbers.reduce((a, b) => Math.max(a, b));
  return Number.isFinite(result) ? result : String(result).replace("Infinity", "inf").toLowerCase();
}
