/** Looking for nodes and groups by anything that is known of them. */

import { counted } from "../../base/format";
import type { SearchAnswer, SearchResult } from "../../base/protocol";
import type { Facts } from "../graphs/data";
import type { Hierarchy } from "../graphs/hierarchy";
import { OF_GROUPS, parseQuery, QueryError, quoted, type Term } from "./query";
import type { Pass, SourceFrame } from "../../base/wire";

const MOST_RESULTS = 60;
const LONGEST_MESSAGE = 1000;
/** Characters of a signature by which a pass is known. */
const SHORTEST_SIGNATURE = 8;
const FEW_PASSES = 6;
const DTYPES: Record<string, string> = {
  ...{ float32: "f32", float64: "f64", float16: "f16", bfloat16: "bf16", int64: "i64", int32: "i32" },
  ...{ int16: "i16", int8: "i8", uint8: "u8", complex64: "c64", complex128: "c128" },
};

type Test = (text: string) => boolean;

/** What is looked through of a node, in small letters. */
interface Entry extends Pick<Facts, "name" | "op" | "target" | "module" | "owner" | "classes"> {
  shapes: string[];
  dtypes: string[];
  /** All that is looked through for bare words, but for where it was made. */
  text: string;
  /** The line of source that made it. */
  madeAt: string;
  /** Numbers of the lines that made it, innermost first. */
  places: number[];
  inputs: number[];
  users: number[];
}

interface Found {
  rank: [number, number];
  result: SearchResult;
}

interface Known {
  hierarchy: Pick<Hierarchy, "groups" | "nodes" | "isComplete">;
  frames: SourceFrame[];
  passes: () => readonly Pick<Pass, "signature" | "name" | "className">[];
  /** How far the result of each node is from the original's; null until it is measured. */
  errors: () => readonly (number | null)[] | null;
}

export class Search {
  private readonly facts: Entry[];
  private readonly lines: string[];
  private readonly positions: Map<string, number>;

  constructor(private readonly known: Known) {
    const { frames } = known;
    const { nodes } = this;
    this.lines = frames.map((frame) => lineOf(frame, frame.file));
    this.positions = new Map(nodes.map(({ name }, i) => [name, i]));
    this.facts = nodes.map((node) => this.entryOf(node));
    this.facts.forEach(({ inputs }, i) => inputs.forEach((other) => this.facts[other]!.users.push(i)));
  }

  private get nodes(): Facts[] {
    return this.known.hierarchy.nodes;
  }

  /** Names that start with the query come first, then names that contain it, then everything else. */
  find(query: string): SearchAnswer {
    try {
      const alternatives = parseQuery(query);
      const positions = this.positionsOf(alternatives);
      const words = alternatives[0]!
        .filter((term) => !term.field && !term.negated && !isPattern(term))
        .map(({ value }) => value.toLowerCase());
      const found = [
        ...this.groupsWith(alternatives).map((result): Found => ({
          rank: rank(result.name.toLowerCase(), null, words),
          result,
        })),
        ...positions.map((i): Found => ({
          rank: rank(this.facts[i]!.name, this.facts[i]!.text, words),
          result: resultOf(this.nodes[i]!),
        })),
      ];
      found.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1]);
      return {
        results: found.slice(0, MOST_RESULTS).map(({ result }) => result),
        total: found.length,
        nodes: positions.length,
        suggestion: found.length === 0 ? this.nearest(alternatives.flat()) : "",
        message: !this.known.hierarchy.isComplete
          ? "Only the part that has arrived was searched."
          : found.length === 0
            ? this.whyNone(alternatives)
            : "",
      };
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      return { results: [], total: 0, nodes: 0, message: error.message.slice(0, LONGEST_MESSAGE) };
    }
  }

  /** Returns the names of the nodes that are found, in the order of the graph; none for an empty query. */
  names(query: string): string[] {
    return this.positionsOf(parseQuery(query)).map((i) => this.nodes[i]!.name);
  }

  private positionsOf(alternatives: Term[][]): number[] {
    const tests = alternatives
      .filter((terms) => terms.length > 0)
      .map((terms) => terms.map((term) => ({ holds: this.reading(term), negated: term.negated })));
    return [...this.facts.keys()].filter((i) =>
      tests.some((terms) => terms.every(({ holds, negated }) => holds(i) !== negated)),
    );
  }

  private groupsWith(alternatives: Term[][]): SearchResult[] {
    const ofGroups = alternatives.filter(
      (terms) => terms.length > 0 && terms.every(({ field }) => OF_GROUPS.has(field)),
    );
    return [...this.known.hierarchy.groups.values()].flatMap(({ data }): SearchResult[] => {
      const [path, name] = [data.path.toLowerCase(), data.className.toLowerCase()];
      const isFound = ofGroups.some((terms) =>
        terms.every((term) => holdsOfGroup(term, path, name) !== term.negated),
      );
      const text = [data.className, counted(data.count, "node")].filter(Boolean).join(" · ");
      return data.path && isFound ? [{ kind: "group", name: data.path, text }] : [];
    });
  }

  /** Returns the word of a name that is one letter from the word that finds nothing; "" if there is none. */
  private nearest([term, ...others]: Term[]): string {
    if (!term || term.field || others.length > 0) return "";
    const words = new Set(this.facts.flatMap(({ name }) => name.split(/[^a-z]+/)));
    return (
      [...words].find((word) => word.length > 2 && isOneLetterAway(word, term.value.toLowerCase())) ?? ""
    );
  }

  /** Says which of several terms finds nothing by itself. */
  private whyNone(alternatives: Term[][]): string {
    const terms = alternatives.flat().filter(({ negated }) => !negated);
    const none = terms.filter((term) => this.positionsOf([[term]]).length === 0);
    if (alternatives.flat().length < 2 || none.length === 0) return "";
    const words = none.map(({ field, value }) => quoted(field ? `${field}:${value}` : value));
    return `No node matches ${words.join(" or ")}.`;
  }

  /** Returns what a term says of nodes. */
  private reading(term: Term): (position: number) => boolean {
    const { facts } = this;
    const value = term.value.toLowerCase();
    const on = (test: Test, text: (facts: Entry) => string) => (i: number) => test(text(facts[i]!));
    const has = textTest(term);
    switch (term.field) {
      case "":
        if (isPattern(term)) return (i) => has(facts[i]!.text) || has(facts[i]!.madeAt);
        return (i) =>
          [value, withShortNames(value)].some((text) => facts[i]!.text.includes(text)) ||
          facts[i]!.madeAt.includes(value);
      case "name":
      case "op":
      case "module": {
        const { field } = term;
        return on(has, (node) => node[field]);
      }
      case "arg":
        return (i) => has(this.nodes[i]!.args.toLowerCase());
      case "target":
        return on(isPattern(term) ? has : part(withShortNames(value)), ({ target }) => target);
      case "class":
        return on(has, value.includes(".") ? ({ owner }) => owner : ({ classes }) => classes);
      case "shape": {
        const isThere = shapeTest(value);
        return (i) => facts[i]!.shapes.some(isThere);
      }
      case "dtype": {
        const wanted = value.replace(/^torch\./, "");
        return (i) => facts[i]!.dtypes.some((dtype) => dtype.startsWith(wanted));
      }
      case "params": {
        const holds = numberTest(term);
        return (i) => holds(this.nodes[i]!.parameters);
      }
      case "elements": {
        const holds = numberTest(term);
        return (i) => facts[i]!.shapes.some((shape) => holds(elementsOf(shape)));
      }
      case "error": {
        const [holds, errors] = [numberTest(term), this.known.errors()];
        if (!errors) throw new QueryError("error: is known once the graph is coloured by the output error.");
        return (i) => holds(errors[i] ?? NaN);
      }
      case "source": {
        const lines = this.lines.map(has);
        return (i) => facts[i]!.places.some((place) => lines[place]!);
      }
      case "by": {
        const signatures = this.signatures(term.value);
        return (i) => this.nodes[i]!.marks.some((mark) => signatures.has(mark));
      }
      default: {
        const related = this.related(term);
        return (i) => related.has(i);
      }
    }
  }

  /** Returns the nodes before or after a node, or between two. */
  private related({ field, value }: Term): Set<number> {
    const [inputs, users] = [this.facts.map((node) => node.inputs), this.facts.map((node) => node.users)];
    if (field === "inputs") return new Set(inputs[this.position(value)]);
    if (field === "users") return new Set(users[this.position(value)]);
    if (field === "upstream") return reachable(inputs, this.position(value));
    if (field === "downstream") return reachable(users, this.position(value));
    const middle = value.indexOf("..");
    const [first, last] = middle < 0 ? ["", ""] : [value.slice(0, middle), value.slice(middle + 2)];
    if (!first || !last) throw new QueryError("path: needs two nodes, such as path:input_ids..output");
    const [start, stop] = [this.position(first), this.position(last)];
    const ahead = reachable(users, start).add(start);
    if (!ahead.has(stop)) {
      const hint = reachable(users, stop).has(start) ? " There is a path in the opposite direction." : "";
      throw new QueryError(`There is no path from ${quoted(first)} to ${quoted(last)}.${hint}`);
    }
    const back = reachable(inputs, stop).add(stop);
    return new Set([...ahead].filter((i) => back.has(i)));
  }

  private position(name: string): number {
    const found = this.positions.get(name);
    if (found !== undefined) return found;
    const small = name.toLowerCase();
    const same = this.facts.findIndex((node) => node.name === small);
    if (same >= 0) return same;
    const close = this.facts.findIndex((node) => node.name.includes(small));
    const hint = close < 0 ? "" : ` There is ${quoted(this.nodes[close]!.name)}.`;
    throw new QueryError(`There is no node ${quoted(name)}.${hint}`);
  }

  private signatures(value: string): Set<string> {
    const passes = this.known.passes();
    const [wanted, small] = [bareName(value), value.toLowerCase()];
    const named = new Set<string>();
    for (const { signature, name, className } of passes) {
      if (wanted && [name, className].some((other) => bareName(other).includes(wanted))) named.add(signature);
    }
    if (small.length >= SHORTEST_SIGNATURE) {
      for (const signature of [
        ...passes.map((pass) => pass.signature),
        ...this.nodes.flatMap(({ marks }) => marks),
      ]) {
        if (signature.startsWith(small)) named.add(signature);
      }
    }
    if (named.size > 0) return named;
    const known = [...new Set(passes.map(({ name }) => name))];
    const offered =
      known.slice(0, FEW_PASSES).map(quoted).join(", ") + (known.length > FEW_PASSES ? ", …" : "");
    throw new QueryError(
      `There is no pass ${quoted(value)}.${known.length > 0 ? ` There is ${offered}.` : ""}`,
    );
  }

  private entryOf(node: Facts): Entry {
    const { name, op, target, owner, module, values, frames: places, marks } = node;
    const rows = values.map(({ shape, dtype }) => ({
      shape,
      dtype: dtype.replace(/^torch\./, "").toLowerCase(),
    }));
    const shapes = rows.filter(({ shape }) => shape.startsWith("(")).map(({ shape }) => sizesOf(shape));
    const dtypes = rows.flatMap(({ dtype }) => [dtype, DTYPES[dtype] ?? ""]).filter(Boolean);
    const innermost = places.length > 0 ? this.known.frames[places[0]!]! : null;
    const madeAt = innermost ? lineOf(innermost, innermost.file.split(/[/\\]/).at(-1)!) : "";
    const changed = marks.length > 0 ? "changed" : "";
    const words = [
      name,
      op,
      target,
      module,
      owner,
      ...rows.map(({ shape }) => shape),
      ...shapes,
      ...dtypes,
      changed,
    ];
    return {
      ...{ op, shapes, dtypes, places, madeAt, users: [] },
      ...{
        name: name.toLowerCase(),
        target: target.toLowerCase(),
        module: module.toLowerCase(),
        owner: owner.toLowerCase(),
      },
      classes: node.classes.toLowerCase(),
      text: words.join("\n").toLowerCase(),
      inputs: node.inputs.flatMap((input) => this.positions.get(input) ?? []),
    };
  }
}

/** Whether a letter was exchanged, left out or put in. */
function isOneLetterAway(a: string, b: string): boolean {
  if (a.length > b.length) return isOneLetterAway(b, a);
  const at = [...a].findIndex((letter, i) => letter !== b[i]);
  if (at < 0) return b.length === a.length + 1;
  return a.slice(a.length === b.length ? at + 1 : at) === b.slice(at + 1);
}

/** Returns a value in small letters with other spellings of `torch.nn.functional.` as targets are written. */
export function withShortNames(value: string): string {
  return value.replace(/\b(?:(?:torch\.)?nn\.)?functional\.|\btorch\._c\._nn\./g, "f.");
}

/** Returns whether a value is part of a text; numbers must be whole, so that `layer.1` is not `layer.10`. */
export function part(value: string): Test {
  const [before, after] = [/^[0-9]/.test(value), /[0-9]$/.test(value)];
  const isDigit = (letter: string | undefined): boolean =>
    letter !== undefined && letter >= "0" && letter <= "9";
  return (text) => {
    for (let at = text.indexOf(value); at >= 0; at = text.indexOf(value, at + 1)) {
      if (!(before && isDigit(text[at - 1])) && !(after && isDigit(text[at + value.length]))) return true;
    }
    return false;
  };
}

/** Returns whether a shape has these sizes beside each other; all of it, in brackets. */
export function shapeTest(value: string): Test {
  const sizes = value
    .replace(/^[()[\]]+|[()[\]]+$/g, "")
    .split(/[×x*, \t]+/)
    .filter(Boolean)
    .join("×");
  if (/^[([]/.test(value) && /[)\]]$/.test(value)) return (shape) => shape === sizes;
  if (!sizes) throw new QueryError("shape: needs sizes, such as shape:2x12");
  return (shape) => `×${shape}×`.includes(`×${sizes}×`);
}

function isPattern({ value }: Term): boolean {
  return /^\/.+\/$/.test(value);
}

/** Returns whether a text has a value in it, or fits a regular expression between two slashes. */
function textTest(term: Term): Test {
  if (!isPattern(term)) return part(term.value.toLowerCase());
  try {
    const pattern = new RegExp(term.value.slice(1, -1), "im");
    return (text) => pattern.test(text);
  } catch {
    throw new QueryError(`${quoted(term.value)} is no regular expression.`);
  }
}

/** Returns whether a number is as large as a term wants it, such as `>1e6`. */
function numberTest({ field, value }: Term): (number: number) => boolean {
  const [, sign = "", digits] = /^([<>]?=?)(\d+(?:\.\d*)?(?:e[-+]?\d+)?)$/i.exec(value) ?? [];
  if (digits === undefined) throw new QueryError(`${field}: needs a number, such as ${field}:>1e6`);
  const limit = Number(digits);
  return (number) =>
    (sign.startsWith(">") && number > limit) ||
    (sign.startsWith("<") && number < limit) ||
    (!/^[<>]$/.test(sign) && number === limit);
}

function elementsOf(shape: string): number {
  return shape.split("×").reduce((product, size) => product * Number(size || 1), 1);
}

function holdsOfGroup(term: Term, path: string, className: string): boolean {
  const { field, value } = term;
  if (field !== "") return textTest(term)(field === "module" ? path : className);
  const text = `${path} ${className} group`;
  return isPattern(term) ? textTest(term)(text) : text.includes(value.toLowerCase());
}

function lineOf({ line, function: name, code }: SourceFrame, file: string): string {
  return `${file}:${line} ${name} ${code}`.toLowerCase();
}

function sizesOf(shape: string): string {
  return shape.slice(1, -1).split(", ").join("×").toLowerCase();
}

function bareName(name: string): string {
  return name.toLowerCase().replace(/[-_ ]/g, "");
}

/** Where a node was made says least of it; a group was made nowhere. */
function rank(name: string, text: string | null, words: string[]): [number, number] {
  if (words.length === 0) return [3, 0];
  if (name === words.join(" ")) return [0, 0];
  if (name.startsWith(words[0]!)) return [1, name.length];
  if (words.every((word) => name.includes(word))) return [2, name.length];
  return text === null || words.every((word) => text.includes(word)) ? [3, 0] : [4, 0];
}

function resultOf({ name, op, target, module, values }: Facts): SearchResult {
  const results = values.map(({ shape, dtype }) => `${shape} ${dtype}`.trim()).join(", ");
  const shown = [target === name ? op : target, results, module === target ? "" : module]
    .filter(Boolean)
    .join(" · ");
  return { kind: "node", name, text: shown.slice(0, 300) };
}

/** Returns what is reached from a position, itself left out unless a cycle leads back to it. */
export function reachable(neighbours: readonly (readonly number[])[], start: number): Set<number> {
  const found = new Set<number>();
  const pending = [start];
  while (pending.length > 0) {
    for (const position of neighbours[pending.pop()!]!) {
      if (found.has(position)) continue;
      found.add(position);
      pending.push(position);
    }
  }
  return found;
}
