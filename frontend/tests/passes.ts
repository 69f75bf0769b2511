/** Passes, as the kernel would send them. */

import type { Pass } from "../src/base/wire";

export function pass(signature: string, rest: Partial<Pass> = {}): Pass {
  return {
    key: signature,
    ...{
      signature,
      name: `Pass ${signature}`,
      className: "Pass",
      description: "",
      arguments: [],
      preserves: true,
      on: false,
      stage: null,
      changes: "",
      isLooking: false,
      candidates: "3 candidates: 3 linears",
      matched: 3,
    },
    ...{ refused: 0, canExclude: false, excluded: 0, steps: 0, reasons: [], note: "", error: null },
    ...rest,
  };
}
