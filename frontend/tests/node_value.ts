/** The values of a node as a kernel describes them: of shape (4, 2, 2), compared with the original's, and a weight. */

import type { InputChoices, NodeValue, TensorStatistics, ValuePart } from "../src/base/wire";

const shape = [4, 2, 2];

export const NODE_VALUE: NodeValue = {
  compared: "Original",
  at: "",
  notes: [],
  inputs: null,
  firstNan: null,
  firstInf: "log",
  tensors: [
    { kind: "value", name: "output", shape, dtype: "float32" },
    { kind: "original", name: "output", shape, dtype: "float32" },
    { kind: "difference", name: "output", shape, dtype: "float32" },
    { kind: "weight", name: "weight", shape: [2, 2], dtype: "float32" },
  ],
  total: 4,
};

export const INPUTS: InputChoices = {
  chosen: "",
  choices: [
    { name: "", title: "the session's inputs" },
    { name: "batch 7", title: "worst batch 7: different" },
  ],
  batches: 9,
};

const STATISTICS: TensorStatistics = {
  ...{ tensor: 0, min: 0, max: 1, mean: 0.5, std: 0.5, zeros: 0 },
  ...{ nan: 0, inf: 0, negativeInf: 0, firstNonFinite: null },
};

/** Returns one of the tensors at an index in its first dimension. */
export function partOf(tensor: number, place = 0): ValuePart {
  const cells = new Uint8Array(new Float32Array([-1, Infinity, -2, 2]).buffer);
  const isWeight = tensor === 3;
  return {
    tensor,
    statistics: isWeight
      ? [{ ...STATISTICS, tensor }]
      : [
          {
            ...{ ...STATISTICS, min: -1, zeros: 0.25, inf: 2, negativeInf: 1, firstNonFinite: [3, 0, 1] },
          },
          { ...STATISTICS, tensor: 1 },
          { ...STATISTICS, tensor: 2, min: "nan", zeros: null },
        ],
    histogram: { edges: [-1, 0, 1], counts: [3, 1] },
    map: {
      ...{
        rows: isWeight ? 0 : 1,
        columns: isWeight ? 1 : 2,
        index: isWeight ? [null, null] : [place, null, null],
      },
      ...{ shape: [2, 2], block: [1, 1], size: [2, 2], numbers: "f4" },
      small: null,
      cells: btoa(String.fromCharCode(...cells)),
    },
  };
}
