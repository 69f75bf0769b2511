/** The code of the stages on the screen, as long as somebody looks at it; what has not arrived is asked for. */

import type { Code } from "../../base/protocol";
import type { Kernel } from "../kernels/kernel";
import { codeOf, NO_CODE } from "./codes";
import type { Choice } from "./stage_choice";

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
