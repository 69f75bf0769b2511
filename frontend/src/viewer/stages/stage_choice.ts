/** Which stages are on the screen, and their graphs, which may have to be asked for. */

import type { Comparison, Stages } from "../../base/protocol";
import type { Kernel } from "../kernels/kernel";
import type { StagesKnown } from "../../base/wire";

export interface Choice {
  stage: number;
  before: number | null;
  compared: Comparison;
  beside: boolean;
  preview: StagesKnown["preview"];
  /** Numbers of the graphs of these stages, each alone, of which overlays are. */
  alone: number[];
}

export const NOTHING: Choice = {
  ...{ stage: 0, before: null, compared: "", beside: false },
  ...{ preview: null, alone: [] },
};

export function isComparison({ before, preview }: Choice): boolean {
  return before !== null || preview !== null;
}

export function isPair({ before, beside, preview }: Choice): boolean {
  return beside && !preview && before !== null;
}

export function lastStage(kernel: Kernel): number {
  return kernel.state.stages.names.length - 1;
}

/** Returns the choice of a stage, alone or compared with another; while a pass is tried out, there is no other. */
export function chosen(kernel: Kernel, stage: number, wanted: Comparison, beside: boolean): Choice {
  const { preview } = kernel.state.stages;
  if (preview) return { ...NOTHING, stage: lastStage(kernel), preview };
  // A report of many stages does not compare any two.
  const isKnown = typeof wanted === "string" || comparisons(kernel, stage).includes(wanted);
  const compared = isKnown ? wanted : "below";
  const before = compared === "" ? null : compared === "below" ? stage - 1 : compared;
  return { ...NOTHING, stage, before, compared, beside: beside && before !== null };
}

/** Waits until the graphs of a choice are here. */
export async function fetchGraphs(kernel: Kernel, choice: Choice): Promise<void> {
  if (placeOf(kernel, choice) !== undefined) return;
  const { stage, before, beside } = choice;
  const { version, names } = kernel.state.stages;
  if (kernel.isFixed || stage < 0 || stage >= names.length)
    throw new Error(
      before === null
        ? `There is no stage ${stage}.`
        : `This report does not compare stage ${stage} with ${before}.`,
    );
  await kernel.ask({ type: "graph", version, stage, before, beside });
  await kernel.ready();
}

/** Returns the number of the graph, or pair, that is chosen; undefined if it has not arrived. */
export function placeOf(kernel: Kernel, { stage, before, beside, preview }: Choice): number | undefined {
  const { alone, merged, pairs } = kernel.state.stages;
  if (preview) return preview.graph;
  if (before === null) return alone[stage];
  return (beside ? pairs : merged)[`${stage}/${before}`];
}

/** Returns the numbers of the graphs of the stages of a choice, each alone. */
export function graphsOf(kernel: Kernel, choice: Choice): number[] {
  const stages = isPair(choice) ? [choice.stage, choice.before!] : [choice.stage];
  return stages.flatMap((stage) => kernel.state.stages.alone[stage] ?? []);
}

/** Says which stages there are, and which are shown. */
export function stagesShown(kernel: Kernel, { stage, compared, before, beside, preview }: Choice): Stages {
  const { names, changes } = kernel.state.stages;
  return {
    ...{ names, changes, shown: stage, compared, before, beside, preview },
    comparisons: comparisons(kernel, stage),
  };
}

/** Returns the stages that a stage can be compared with. */
function comparisons(kernel: Kernel, stage: number): number[] {
  if (!kernel.isFixed) return Array.from({ length: stage }, (_, i) => i);
  return Object.keys(kernel.state.stages.pairs).flatMap((key) => {
    const [after, before] = key.split("/").map(Number);
    return after === stage ? [before!] : [];
  });
}
