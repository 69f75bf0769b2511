/** The generated Python of stages, read from what `fxlab/view_model/graph_data/facts.py` writes, while somebody looks at it. */

import { type Code, type CodeLine, NO_CODE } from "../../base/protocol";
import type { Data } from "../graphs/data";
import type { StagesKnown, WrittenCode } from "../../base/wire";
import type { Kernel } from "../kernels/kernel";
import type { Choice } from "./stage_choice";

/** What is shown: the number of a stage, and of the one that it is compared with; or a preview. */
interface Shown {
  stage: number;
  before: number | null;
  preview: object | null;
}

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

export class ShownCode {
  /** In how many places it is looked at: a widget can be shown in several. */
  private readers = 0;

  constructor(
    private readonly kernel: Kernel,
    /** Says which stages are on the screen; null before there is a graph. */
    private readonly chosen: () => Choice | null,
    private readonly show: (code: Code) => void,
  ) {}

  /** Somebody begins to look, or stops. */
  look(isLooking: boolean): Promise<void> {
    this.readers += isLooking ? 1 : -1;
    return this.update();
  }

  async update(): Promise<void> {
    const { kernel } = this;
    const choice = this.chosen();
    if (this.readers === 0 || !choice) return;
    const known = (): Code | null => codeOf(kernel.data, kernel.state.stages, choice);
    let code = known();
    if (!code && !kernel.isFixed) {
      this.show({ ...NO_CODE, state: "pending" });
      const { stage, before } = choice;
      try {
        await kernel.ask({ type: "code", version: kernel.state.stages.version, stage, before });
        await kernel.ready();
      } finally {
        code = known();
        if (!code && choice === this.chosen())
          this.show({ ...NO_CODE, state: "failed", text: "The code of this stage has not arrived." });
      }
    }
    // Another stage is shown by now, or the session has changed and is about to be.
    if (choice === this.chosen() && code) this.show(code);
  }
}
