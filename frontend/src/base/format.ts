/** Numbers and names as people read them. */

import type { Cell, ColumnKind } from "./wire";

/** The sizes of multiples of each unit, the largest first. */
const MULTIPLES: Record<string, Record<string, number>> = {
  s: { s: 1, ms: 1e-3, µs: 1e-6 },
  B: { GiB: 2 ** 30, MiB: 2 ** 20, KiB: 2 ** 10, B: 1 },
};
const COUNTS = { T: 1e12, G: 1e9, M: 1e6, k: 1e3 };
const [SCIENTIFIC_FROM, SCIENTIFIC_BELOW] = [10_000, 0.01];

/**
 * Returns a number with its unit ("s", "B" or none), in the multiple that keeps it short; one without a unit that
 * is tiny or huge is in scientific notation. The twin of `with_unit` in `fxlab/base/units.py`.
 */
export function withUnit(value: number, unit = ""): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (unit in MULTIPLES && value === 0) return `0 ${unit}`;
  const isCount = Number.isInteger(value) && value >= SCIENTIFIC_FROM;
  const multiples = Object.entries(MULTIPLES[unit] ?? (isCount ? COUNTS : {}));
  if (multiples.length > 0) {
    const [name, size] = multiples.find(([, smallest]) => value >= smallest) ?? multiples.at(-1)!;
    return `${size === 1 && unit === "B" ? value : rounded(value / size, 3)} ${name}`;
  }
  const magnitude = Math.abs(value);
  if (value === 0 || (magnitude >= SCIENTIFIC_BELOW && magnitude < SCIENTIFIC_FROM))
    return String(rounded(value, 4));
  const [digits, exponent] = value.toExponential(2).split("e") as [string, string];
  return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

function rounded(value: number, digits: number): number {
  return Number(value.toPrecision(digits));
}

/** Returns a cell's text on the screen. */
export function cellText(value: Cell, kind: ColumnKind): string {
  if (value === null) return "";
  if (Array.isArray(value)) {
    if (kind === "nodes") return value.map(String).join(", ");
    return `(${value.map((cell) => cellValue(cell)).join(", ")})`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (kind === "share") return percent(value);
    if (kind === "seconds") return withUnit(value, "s");
    if (kind === "bytes") return withUnit(value, "B");
    return kind === "integer" || Number.isInteger(value) ? grouped(value) : withUnit(value);
  }
  if (isNumeric(kind)) {
    const number = { nan: NaN, inf: Infinity, "-inf": -Infinity }[value];
    return number === undefined ? value : withUnit(number);
  }
  return value;
}

/** Whether a column holds numbers, whatever their unit. */
export function isNumeric(kind: ColumnKind): boolean {
  return ["number", "integer", "error", "share", "seconds", "bytes"].includes(kind);
}

const EXACT = 1e-9;

/** Returns how long a bar stands behind a number, from 0 to 1; null for columns without bars. */
export function barLength(value: Cell, kind: ColumnKind): number | null {
  if (kind === "share") return typeof value === "number" ? value : null;
  if (kind !== "error") return null;
  if (typeof value !== "number") return value === null ? null : 1;
  // Errors are far apart: each tenth of the bar is a factor of about eight.
  return value <= EXACT ? 0 : Math.min(1, 1 - Math.log10(value) / Math.log10(EXACT));
}

/** Returns a cell's complete value, for copying and for hovering. */
export function cellValue(value: Cell): string {
  if (value === null) return "";
  if (Array.isArray(value)) return `(${value.map((cell) => cellValue(cell)).join(", ")})`;
  return String(value);
}

/** Orders two cells: numbers by size, with NaN as the largest; everything else as text. */
export function compareCells(a: Cell, b: Cell): number {
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x !== null && y !== null) return x - y;
  return cellValue(a).localeCompare(cellValue(b), "en", { numeric: true });
}

function asNumber(value: Cell): number | null {
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (value === "nan") return Number.MAX_VALUE;
  if (value === "inf") return Number.MAX_VALUE / 2;
  return value === "-inf" ? -Number.MAX_VALUE : null;
}

/** Returns a stage, or the pass that made it, by its number and its name; a pass that is off has no number. */
export function numbered(stage: number | null, name: string): string {
  return stage === null ? name : `${stage}. ${name}`;
}

/** Returns a number with its thousands apart: "1,234". */
export function grouped(number: number): string {
  return number.toLocaleString("en-US");
}

/** Returns "1 node", "2 nodes"; "1 match", "2 matches". */
export function counted(count: number, word: string, several = `${word}s`): string {
  return `${grouped(count)} ${count === 1 ? word : several}`;
}

export function capitalized(words: string): string {
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

/** Returns how often each of some words occurs. */
export function countsOf(words: string[]): Record<string, number> {
  // Words come from models, and may be those that objects have from their prototype.
  const counts = Object.create(null) as Record<string, number>;
  for (const word of words) counts[word] = (counts[word] ?? 0) + 1;
  return counts;
}

/** Adds a value to those of a key. */
export function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/** Returns the kinds of values in words, the most frequent first. */
export function kindsOf(values: unknown[]): string[] {
  return Object.entries(countsOf(values.map(String)))
    .sort(([a, m], [b, n]) => n - m || a.localeCompare(b))
    .map(([kind]) => kind);
}

/** Returns a value of a table as a number, null if it is none. */
export function numberOf(value: unknown): number | null {
  if (typeof value === "number") return value;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : null;
}
