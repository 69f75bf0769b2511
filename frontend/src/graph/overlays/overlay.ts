/** What an overlay means in colours and words: costs, errors or kinds, painted on the boxes of a picture. */

import type { Overlay, Picture } from "../../base/protocol";
import type { Cell } from "../../base/wire";
import { clamp } from "../../base/rectangles";
import { kindsOf, numberOf, percent, withUnit } from "../../base/format";

export const NUMBER_OF_KINDS = 8;

/** How one box is painted: somewhere between low (0) and high (1), as one of some kinds, or with nothing. */
export interface Paint {
  level?: number;
  kind?: number;
  words: string;
  /** Written on the box; empty if nothing is. */
  label: string;
}

export interface Painted {
  title: string;
  boxes: Map<string, Paint>;
  /** What the two ends of the scale mean; null for kinds. */
  ends: [low: string, high: string] | null;
  /** Words of the kinds, by number. */
  kinds: string[];
  /** There are values, and none of them tells one box from another. */
  isAllZero: boolean;
}

/**
 * Returns how the boxes of pictures are painted by an overlay of each, on one scale. Opened groups and chips
 * have words alone.
 */
export function paintTogether(graphs: [Overlay, Picture][]): Painted[] {
  const values = graphs.flatMap(([overlay, { boxes }]) =>
    Object.entries(boxes).flatMap(([id, { kind }]) =>
      kind === "cluster" || kind === "chip" ? [] : (overlay.values[id] ?? []),
    ),
  );
  const isNumeric = graphs.every(([overlay]) => overlay.numeric);
  const scale = graphs[0] && isNumeric ? numbers(graphs[0][0], values.map(numberOf)) : null;
  const kinds = scale || graphs.some(([overlay]) => overlay.isText) ? [] : kindsOf(values);
  const known = values.filter((value) => value !== null);
  const isAllZero = isNumeric && known.length > 0 && known.every((value) => numberOf(value) === 0);
  return graphs.map(([overlay, picture]) => ({
    title: overlay.title,
    boxes: paints(overlay, picture, scale, kinds),
    ends: scale ? scale.ends : null,
    kinds,
    isAllZero,
  }));
}

function paints(
  overlay: Overlay,
  picture: Picture,
  scale: Scale | null,
  kinds: string[],
): Map<string, Paint> {
  const boxes = new Map<string, Paint>();
  for (const [id, box] of Object.entries(picture.boxes)) {
    const value = overlay.values[id];
    if (value === undefined || value === null || box.kind === "chip") continue;
    const words = `${overlay.title}: ${wordsOf(value, overlay)}`;
    const label = overlay.labels?.[id] ?? "";
    if (box.kind === "cluster") boxes.set(id, { words, label: "" });
    else if (overlay.isText) boxes.set(id, { words, label });
    else if (scale) boxes.set(id, { level: clamp(scale.level(numberOf(value)!) || 0, 0, 1), words, label });
    else boxes.set(id, { kind: Math.min(kinds.indexOf(String(value)), NUMBER_OF_KINDS - 1), words, label });
  }
  return boxes;
}

/** Returns a value with its unit, and its share of all where values add up. */
export function wordsOf(value: Cell, overlay: Overlay): string {
  const number = overlay.numeric ? numberOf(value) : null;
  if (number === null) return String(value);
  const total = numberOf(overlay.total);
  const share = overlay.combine === "sum" && total ? ` (${percent(number / total)})` : "";
  return withUnit(number, overlay.unit) + share;
}

interface Scale {
  /** From 0 to 1; of infinity it may be beyond, or NaN. */
  level(value: number): number;
  ends: [string, string];
}

/** Costs grow from nothing in proportion; errors lie orders of magnitude apart. */
function numbers(overlay: Overlay, values: (number | null)[]): Scale {
  const known = values.filter((value) => value !== null);
  const finite = known.filter(Number.isFinite);
  const low = finite.length ? Math.min(...finite) : 0;
  const high = finite.length ? Math.max(...finite) : 0;
  // Where finite values are all the same, infinity is the end that tells others apart.
  const last = high > low ? high : Math.max(high, ...known);
  const ends = (first: number): [string, string] => [
    withUnit(first, overlay.unit),
    withUnit(last, overlay.unit),
  ];
  if (overlay.combine === "sum" && low >= 0) {
    return { level: (value) => (high ? value / high : Number(value > 0)), ends: ends(0) };
  }
  const smallest = Math.min(...finite.filter((value) => value > 0));
  if (low >= 0 && smallest < high) {
    const span = Math.log(high / smallest);
    return {
      level: (value) => (value > 0 ? 0.12 + (0.88 * Math.log(value / smallest)) / span : 0),
      ends: ends(low),
    };
  }
  const span = high - low;
  return { level: (value) => (span ? (value - low) / span : Number(value > 0)), ends: ends(low) };
}
