/** Two codes as rows: what stands beside or below what, what is folded, and the words that differ in a line. */

import type { Code } from "../base/protocol";
import type { CodeChange } from "../base/wire";

/** Equal lines that are shown around a change. */
const CONTEXT = 3;
/** Fewer equal lines are not worth a fold. */
const FEWEST_FOLDED = 4;
/** Lines that are on the screen at first, and that one press unfolds. */
export const MOST_AT_ONCE = 5_000;
const MOST_TOKENS = 150;

export interface Row {
  kind: CodeChange;
  /** Places of lines in the two codes. */
  before: number | null;
  after: number | null;
  /** The lines of which the words are compared. */
  pair: [before: number, after: number] | null;
}

/** Rows from a start up to a stop, shown or folded. */
export interface Stretch {
  start: number;
  stop: number;
  isOpen: boolean;
}

/** Returns the rows of a code, or of two; unified, a line that has changed is two rows. */
export function rowsOf({ after, before, runs }: Code, unified: boolean): Row[] {
  if (!before) return after.map((_, place) => ({ kind: "same", before: null, after: place, pair: null }));
  const rows: Row[] = [];
  let [i, j] = [0, 0];
  for (const [kind, length] of runs) {
    const [old, now] = [kind !== "added", kind !== "removed"];
    const lines = Array.from({ length }, (_, step): Row => {
      const [b, a] = [i + step, j + step];
      return {
        kind,
        before: old ? b : null,
        after: now ? a : null,
        pair: kind === "changed" ? [b, a] : null,
      };
    });
    if (kind === "changed" && unified) {
      rows.push(...lines.map((row): Row => ({ ...row, kind: "removed", after: null })));
      rows.push(...lines.map((row): Row => ({ ...row, kind: "added", before: null })));
    } else for (const row of lines) rows.push(row);
    if (old) i += length;
    if (now) j += length;
  }
  return rows;
}

/** Folds long stretches of equal lines, and what there is no room for on one screen. */
export function folded(rows: Row[], isCompared: boolean, room = MOST_AT_ONCE): Stretch[] {
  const stretches: Stretch[] = [];
  const add = (start: number, stop: number, isOpen: boolean): void => {
    if (start >= stop) return;
    const end = isOpen ? Math.min(stop, start + room) : start;
    const last = stretches.at(-1);
    if (end > start) {
      if (last?.isOpen) last.stop = end;
      else stretches.push({ start, stop: end, isOpen: true });
      room -= end - start;
    }
    if (end >= stop) return;
    const before = stretches.at(-1);
    if (before && !before.isOpen) before.stop = stop;
    else stretches.push({ start: end, stop, isOpen: false });
  };
  for (let start = 0, stop = 0; start < rows.length; start = stop) {
    const isSame = rows[start]!.kind === "same";
    while (stop < rows.length && (rows[stop]!.kind === "same") === isSame) stop += 1;
    const first = start + (start > 0 ? CONTEXT : 0);
    const last = stop - (stop < rows.length ? CONTEXT : 0);
    if (!isSame || !isCompared || last - first < FEWEST_FOLDED) {
      add(start, stop, true);
      continue;
    }
    add(start, first, true);
    add(first, last, false);
    add(last, stop, true);
  }
  return stretches;
}

/** Shows rows of a fold; what is left of it stays folded. */
export function unfolded(fold: Stretch, from: number, to: number): Stretch[] {
  const [start, stop] = [Math.max(fold.start, from), Math.min(fold.stop, to)];
  return [
    { start: fold.start, stop: start, isOpen: false },
    { start, stop, isOpen: true },
    { start: stop, stop: fold.stop, isOpen: false },
  ].filter((stretch) => stretch.start < stretch.stop);
}

export interface Words {
  text: string;
  differs: boolean;
}

/** Returns two lines in parts that are in both and parts that are in one. */
export function wordsOf(before: string, after: string): [before: Words[], after: Words[]] {
  const [old, now] = [tokens(before), tokens(after)];
  let head = 0;
  while (head < Math.min(old.length, now.length) && old[head] === now[head]) head += 1;
  let tail = 0;
  const room = Math.min(old.length, now.length) - head;
  while (tail < room && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const [mine, theirs] = [old.slice(head, old.length - tail), now.slice(head, now.length - tail)];
  const isShort = mine.length <= MOST_TOKENS && theirs.length <= MOST_TOKENS;
  const kept = isShort ? inBoth(mine, theirs) : [new Set<number>(), new Set<number>()];
  const parts = (all: string[], middle: number, common: Set<number>): Words[] => {
    const words: Words[] = [];
    all.forEach((text, i) => {
      const differs = i >= head && i < head + middle && !common.has(i - head);
      const last = words.at(-1);
      if (last?.differs === differs) last.text += text;
      else words.push({ text, differs });
    });
    return words;
  };
  return [parts(old, mine.length, kept[0]!), parts(now, theirs.length, kept[1]!)];
}

function tokens(text: string): string[] {
  return text.match(/\w+|\s+|[^\w\s]/gu) ?? [];
}

/** Returns the places of the longest sequence of tokens that is in both lists. */
function inBoth(a: string[], b: string[]): [Set<number>, Set<number>] {
  const width = b.length + 1;
  /** By the places from which on tokens are left: how long the sequence can be. */
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] =
        a[i] === b[j]
          ? lengths[(i + 1) * width + j + 1]! + 1
          : Math.max(lengths[(i + 1) * width + j]!, lengths[i * width + j + 1]!);
  const found: [Set<number>, Set<number>] = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) {
      found[0].add(i++);
      found[1].add(j++);
    } else if (lengths[(i + 1) * width + j]! >= lengths[i * width + j + 1]!) i += 1;
    else j += 1;
  }
  return found;
}

/** Returns rows as text: the code, or what a unified difference has. */
export function textOf(code: Code): string {
  if (!code.before) return code.after.map(({ text }) => text).join("\n");
  return rowsOf(code, true)
    .map(({ kind, before, after }) => {
      const line = after === null ? code.before![before!]! : code.after[after]!;
      return `${kind === "removed" ? "-" : kind === "added" ? "+" : " "}${line.text}`;
    })
    .join("\n");
}
