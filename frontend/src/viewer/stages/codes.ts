/** The generated Python of stages, read from what `fxlab/view_model/graph_data/facts.py` writes. */

import type { Code, CodeLine } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type { StagesKnown, WrittenCode } from "../../base/wire";

/** What is shown: the number of a stage, and of the one that it is compared with; or a preview. */
interface Shown {
  stage: number;
  before: number | null;
  preview: object | null;
}

export const NO_CODE: Code = {
  state: "none",
  text: "",
  after: [],
  before: null,
  runs: [],
  isLinked: true,
};

/** Returns the code of what is shown; null if it has not arrived. */
export function codeOf(data: Data, stages: StagesKnown, { stage, before, preview }: Shown): Code | null {
  const difference = preview
    ? stages.preview?.difference
    : before === null
      ? undefined
      : stages.codeDifferences[`${stage}/${before}`];
  if (difference !== undefined) {
    const { before: old, after, runs } = data.codeDifferences[difference]!;
    const [removed, now] = [data.codes[old]!, data.codes[after]!];
    return {
      ...{ state: "ready", text: "", runs, isLinked: removed.linked && now.linked },
      after: linesOf(data, now),
      before: linesOf(data, removed),
    };
  }
  const alone = preview || before !== null ? undefined : stages.codes[stage];
  const code = alone === undefined ? undefined : data.codes[alone];
  return code ? { ...NO_CODE, state: "ready", after: linesOf(data, code), isLinked: code.linked } : null;
}

function linesOf(data: Data, { ranges }: WrittenCode): CodeLine[] {
  const lines: CodeLine[] = [];
  for (let i = 0; i < ranges.length; i += 2)
    for (let number = ranges[i]!; number < ranges[i]! + ranges[i + 1]!; number += 1)
      lines.push(data.codeLine(number));
  return lines;
}
