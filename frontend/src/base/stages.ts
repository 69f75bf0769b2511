/** Stages of a session as they are looked at: alone, compared with another, or several side by side. */

import { numbered } from "./format";
import type { LookedAt } from "./protocol";

/** So many graphs can be read on one screen. */
export const MOST_PANES = 6;

/** How a person wants to look at stages. */
export type Wish = Omit<LookedAt, "stage">;

export const NOTHING_BESIDE: Wish = { compared: "", beside: false, between: [] };

/** Returns the nearest to what is wished for: the original has nothing below it, and other stages not all. */
export function possible({ compared, beside, between = [] }: Wish, stage: number): LookedAt {
  if (stage === 0 || compared === "") return { stage, ...NOTHING_BESIDE };
  const first = compared === "below" || compared < stage ? compared : "below";
  const inner = beside && first !== "below" ? between.filter((other) => first < other && other < stage) : [];
  return { stage, compared: first, beside, between: inner };
}

/** Returns how stages are looked at side by side, the numbers of which may be in any order. */
export function inRow(stages: number[]): LookedAt & { row: number[] } {
  const row = [...new Set(stages)].sort((a, b) => a - b);
  const [first = 0, stage = first] = [row[0], row.at(-1)];
  if (row.length < 2) return { stage, ...NOTHING_BESIDE, row };
  return { stage, compared: first, beside: true, between: row.slice(1, -1), row };
}

/** Returns what a stage is called where there are several. */
export function titleOfStage(names: string[] = [], number = 0): string {
  return numbered(number || null, names[number] ?? "");
}
