/** Where passes could change the graph: a kernel looks for it pass after pass, so that it hears of clicks between them. */

import type { Kernel } from "../kernels/kernel";
import type { Pass, Passes } from "../../base/wire";

export class Candidates {
  private isAsking = false;

  constructor(private readonly kernel: Kernel) {}

  /** Asks until nothing is missing, and calls back after each answer; returns whether anything was asked. */
  async fetch(arrived: () => Promise<void>): Promise<boolean> {
    const { kernel } = this;
    const areMissing = (): boolean => kernel.state.passes.passes.some(({ isLooking }) => isLooking);
    if (this.isAsking || kernel.isFixed || !areMissing()) return false;
    this.isAsking = true;
    try {
      while (areMissing()) {
        const { value: areAll } = await kernel.ask({ type: "candidates" });
        await kernel.ready();
        await arrived();
        if (areAll) break;
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
