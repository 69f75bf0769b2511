/** The passes that are on, the nodes that they have changed, and where others could change the graph. */

import type { Panes } from "../graphs/panes";
import type { Kernel } from "../kernels/kernel";
import type { Pass, Passes } from "../../base/wire";

export class AppliedPasses {
  /** Keys of passes that were on -> their signatures. */
  private applied = new Map<string, string>();

  constructor(private readonly kernel: Kernel) {}

  /** Returns which passes were switched on, or do something else now, and which off, since this was asked last. */
  switched(): { on: Pass[]; off: string[] } {
    const was = this.applied;
    const now = this.kernel.state.passes.passes.filter((pass) => pass.on);
    this.applied = new Map(now.map(({ key, signature }) => [key, signature]));
    return {
      on: now.filter(({ key, signature }) => was.get(key) !== signature),
      off: [...was.keys()].filter((key) => !this.applied.has(key)),
    };
  }

  /** Returns the nodes of the highest pass that has some in a graph; none if no pass has. */
  lastChanged(panes: Panes): string[] {
    const names = this.kernel.state.passes.passes
      .filter(({ on }) => on)
      .map(({ signature }) => changedBy(signature, panes));
    return names.findLast(({ length }) => length > 0) ?? [];
  }
}

export function changedBy(signature: string, panes: Panes): string[] {
  return panes.scene.hierarchy.nodes.filter(({ marks }) => marks.includes(signature)).map(({ name }) => name);
}

export class Candidates {
  private isAsking = false;

  constructor(private readonly kernel: Kernel) {}

  /** Asks until nothing is missing, and calls back after each answer; returns whether anything was asked. */
  async fetch(arrived: () => Promise<unknown>): Promise<boolean> {
    const { kernel } = this;
    const areMissing = (): boolean => kernel.state.passes.passes.some(({ isLooking }) => isLooking);
    if (this.isAsking || kernel.isFixed || !areMissing()) return false;
    this.isAsking = true;
    try {
      while (areMissing()) {
        await kernel.ask({ type: "candidates" });
        await kernel.ready();
        await arrived();
      }
      return true;
    } finally {
      this.isAsking = false;
    }
  }
}

/** Returns passes of which nothing is known. */
export function unknownCandidates(passes: Passes): Passes {
  const note = "Its candidates are unknown: the kernel did not answer.";
  const known = (pass: Pass): Pass => (pass.isLooking ? { ...pass, isLooking: false, note } : pass);
  return { ...passes, passes: passes.passes.map(known) };
}
