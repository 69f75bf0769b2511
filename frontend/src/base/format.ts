/** Numbers and names as people read them. */

import type { Cell, ColumnKind } from "./protocol";

/** Formats a number that may be tiny or huge: scientific notation outside of the everyday. */
export function scientific(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 0.01 && size < 10_000) return String(Number(value.toPrecision(4)));
  const [digits, exponent] = value.toExponential(2).split("e") as [string, string];
  const power = Number(exponent);
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** Returns a cell's text on the screen. */
export function cellText(value: Cell, kind: ColumnKind): string {
  if (value === null) return "";
  if (Array.isArray(value)) {
    if (kind === "stage") return stageWords(value);
    if (kind === "nodes") return value.map(String).join(", ");
    return `(${value.map((cell) => cellValue(cell)).join(", ")})`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (kind === "share") return `${(100 * value).toFixed(1)} %`;
    if (kind === "seconds") return seconds(value);
    if (kind === "bytes") return bytes(value);
    return kind === "integer" || Number.isInteger(value) ? value.toLocaleString("en-US") : scientific(value);
  }
  if (isNumeric(kind)) {
    return value === "inf" ? "∞" : value === "-inf" ? "−∞" : value === "nan" ? "NaN" : value;
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

function seconds(value: number): string {
  const [factor, unit] = value < 1e-3 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((value * factor).toPrecision(3))} ${unit}`;
}

function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, value < 1 ? 0 : Math.floor(Math.log2(value) / 10));
  return `${Number((value / 1024 ** power).toPrecision(3)).toLocaleString("en-US")} ${units[power]}`;
}

/**
 * Returns what a node is at a stage: a sign, in what it differs, and the names of those that stand for it.
 */
function stageWords([words, ...names]: Cell[]): string {
  return [String(words), names.map(String).join(", ")].filter(Boolean).join(" ");
}

/** Returns a cell's complete value, for copying and for hovering. */
export function cellValue(value: Cell, kind?: ColumnKind): string {
  if (value === null) return "";
  if (kind === "stage" && Array.isArray(value)) return stageWords(value);
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

/** Returns "1 node", "2 nodes"; "1 match", "2 matches". */
export function counted(count: number, word: string, several = `${word}s`): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? word : several}`;
}
