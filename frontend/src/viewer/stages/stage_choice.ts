/** Which stages are on the screen, and their graphs, which may have to be asked for. */

import type { LookedAt, Stages } from "../../base/protocol";
import type { StagesKnown } from "../../base/wire";
import { inRow, MOST_PANES } from "../../base/stages";
import type { Place } from "../graphs/graphs";
import type { Kernel } from "../kernels/kernel";

export interface Choice extends LookedAt {
  before: number | null;
  preview: StagesKnown["preview"];
  /** The numbers of the graphs of the stages on the screen, each alone, of which overlays are; by pane. */
  alone: number[];
}

export const NOTHING: Choice = {
  ...{ stage: 0, before: null, compared: "", beside: false, between: [] },
  ...{ preview: null, alone: [] },
};

export function isComparison({ before, preview }: Choice): boolean {
  return before !== null || preview !== null;
}

export function lastStage(kernel: Kernel): number {
  return kernel.state.stages.names.length - 1;
}

/** Returns the choice of a stage, alone or compared with others; while a pass is tried out, there are no others. */
export function chosen(kernel: Kernel, { stage, compared: wanted, beside, between }: LookedAt): Choice {
  const { preview } = kernel.state.stages;
  if (preview) return { ...NOTHING, stage: lastStage(kernel), preview };
  // A report of many stages does not compare any two.
  const isKnown = typeof wanted === "string" || comparisons(kernel, stage).includes(wanted);
  const compared = isKnown ? wanted : "below";
  const before = compared === "" ? null : compared === "below" ? stage - 1 : compared;
  const choice = { ...NOTHING, stage, before, compared, beside: beside && before !== null };
  for (const other of choice.beside ? inRow(between).row : []) {
    const more = { ...choice, between: [...choice.between, other] };
    if (before! < other && other < stage && isRow(kernel, rowOf(more))) choice.between = more.between;
  }
  return choice;
}

/** Waits until the graphs of a choice are here. */
export async function fetchGraphs(kernel: Kernel, choice: Choice): Promise<void> {
  if (placeOf(kernel, choice) !== undefined) return;
  const { stage, before, beside } = choice;
  const { version, names, pairs } = kernel.state.stages;
  if (kernel.isFixed || stage < 0 || stage >= names.length)
    throw new Error(
      before === null || stage >= names.length
        ? `There is no stage ${stage}.`
        : `This report does not compare stage ${stage} with ${before}.`,
    );
  const asked = beside
    ? steps(rowOf(choice)).filter(([after, below]) => pairs[`${after}/${below}`] === undefined)
    : [[stage, before] as const];
  for (const [after, below] of asked)
    await kernel.ask({ type: "graph", version, stage: after, before: below, beside });
  await kernel.ready();
}

/** Returns where the graphs that are chosen are; undefined if they have not all arrived. */
export function placeOf(kernel: Kernel, choice: Choice): Place | undefined {
  const { stage, before, beside, preview } = choice;
  const { alone, merged, pairs } = kernel.state.stages;
  if (preview) return preview.graph;
  if (before === null) return alone[stage];
  if (!beside) return merged[`${stage}/${before}`];
  const numbers = steps(rowOf(choice)).map(([after, below]) => pairs[`${after}/${below}`]);
  return numbers.every((number) => number !== undefined) ? numbers : undefined;
}

/** Returns the numbers of the graphs of the stages of a choice, each alone, by pane. */
export function graphsOf(kernel: Kernel, choice: Choice): number[] {
  const row = rowOf(choice);
  return [row.at(-1)!, ...row.slice(0, -1)].flatMap((stage) => kernel.state.stages.alone[stage] ?? []);
}

/** Says which stages there are, and which are shown. */
export function stagesShown(kernel: Kernel, choice: Choice): Stages {
  const { stage, compared, before, beside, between, preview } = choice;
  const { names, changes } = kernel.state.stages;
  const row = rowOf(choice);
  const others = names.map((_, i) => i).filter((i) => !row.includes(i));
  return {
    ...{ names, changes, shown: stage, compared, before, beside, between, preview, row },
    comparisons: comparisons(kernel, stage),
    addable: row.length < MOST_PANES ? others.filter((i) => isRow(kernel, inRow([...row, i]).row)) : [],
  };
}

/** Returns the numbers of the stages on the screen, from left to right. */
function rowOf({ stage, before, beside, between }: Choice): number[] {
  return beside && before !== null ? [before, ...between, stage] : [stage];
}

/** Returns each stage of a row but the first, with the one before it. */
function steps(row: number[]): [after: number, before: number][] {
  return row.slice(1).map((stage, i) => [stage, row[i]!]);
}

/** Whether stages can be shown in a row: a report has not all pairs of many stages. */
function isRow(kernel: Kernel, row: number[]): boolean {
  const { pairs } = kernel.state.stages;
  const isThere = ([after, before]: [number, number]): boolean => pairs[`${after}/${before}`] !== undefined;
  return row.length <= MOST_PANES && (!kernel.isFixed || steps(row).every(isThere));
}

function comparisons(kernel: Kernel, stage: number): number[] {
  const all = Array.from({ length: stage }, (_, i) => i);
  return kernel.isFixed ? all.filter((before) => isRow(kernel, [before, stage])) : all;
}
