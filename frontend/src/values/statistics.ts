/** The statistics of a tensor: a small table, beside those of what it is compared with, and a histogram. */

import { h } from "../base/dom";
import { cellText, counted, grouped, withUnit } from "../base/format";
import type { Cell, ColumnKind, NodeValue, TensorInfo, TensorStatistics, ValuePart } from "../base/wire";

/** Shows an element of one of the tensors. */
export type ShowElement = (tensor: number, index: number[]) => void;

const ROWS: [title: string, kind: ColumnKind, of: (statistics: TensorStatistics) => Cell][] = [
  ["Min", "number", ({ min }) => min],
  ["Max", "number", ({ max }) => max],
  ["Mean", "number", ({ mean }) => mean],
  ["Std", "number", ({ std }) => std],
  ["Zeros", "share", ({ zeros }) => zeros],
  ["NaN", "integer", ({ nan }) => nan],
  ["+∞", "integer", ({ inf }) => inf],
  ["−∞", "integer", ({ negativeInf }) => negativeInf],
];

/** Returns the table; `go` shows an element, where there is somebody to ask for it. */
export function statisticsTable(part: ValuePart, value: NodeValue, go: ShowElement | null): HTMLElement {
  const { statistics } = part;
  const titles = statistics.map(({ tensor }) => titleOf(value.tensors[tensor]!, value));
  const hasNonFinite = statistics.some(({ firstNonFinite }) => firstNonFinite !== null);
  return h("table.fxi-values-table", [
    h("caption.fxi-sr", "Statistics"),
    h("thead", [
      h("tr", [h("td"), titles.map((title) => h("th.fxi-muted", { scope: "col", title }, title))]),
    ]),
    h("tbody", [
      ROWS.map(([title, kind, of]) =>
        h("tr", [h("th.fxi-muted", { scope: "row" }, title), statistics.map((one) => cell(of(one), kind))]),
      ),
      hasNonFinite &&
        h("tr", [
          h("th.fxi-muted", { scope: "row" }, "First at"),
          statistics.map(({ tensor, firstNonFinite }) =>
            h("td", firstNonFinite && place(tensor, firstNonFinite, go)),
          ),
        ]),
    ]),
  ]);
}

/** What a tensor is called among those that it is compared with. */
export function titleOf({ kind, name }: TensorInfo, { compared }: NodeValue): string {
  if (kind === "weight") return name;
  return { value: "Value", original: compared || "Original", difference: "Difference" }[kind];
}

function cell(value: Cell, kind: ColumnKind): HTMLElement {
  const isBad = kind === "integer" && value !== 0;
  const text = value === "nan" ? "—" : typeof value === "boolean" ? String(value) : cellText(value, kind);
  return h("td", { class: isBad ? "fxi-values-bad" : "", title: String(value) }, text);
}

function place(tensor: number, index: number[], go: ShowElement | null): HTMLElement | string {
  const text = `[${index.join(", ")}]`;
  if (!go) return text;
  const title = `Show element ${text}`;
  return h("button.fxi-link", { title, onclick: () => go(tensor, index) }, text);
}

/** Returns a bar for each bin, which says its count. */
export function histogram({ edges, counts }: ValuePart["histogram"]): HTMLElement {
  if (counts.length === 0) return h("p.fxi-muted", "No finite elements.");
  const most = Math.max(...counts);
  const total = counts.reduce((sum, count) => sum + count, 0);
  // Few whole numbers have a bin each, around the number.
  const isWhole = Math.abs(edges[0]! % 1) === 0.5 && edges.at(-1)! - edges[0]! === counts.length;
  const low = edges[0]! + (isWhole ? 0.5 : 0);
  const high = edges.at(-1)! - (isWhole ? 0.5 : 0);
  const range = (i: number): string =>
    isWhole ? withUnit(low + i) : `${withUnit(edges[i]!)} to ${withUnit(edges[i + 1]!)}`;
  const highest = counts.indexOf(most);
  const words =
    `Histogram of ${counted(total, "element")} from ${withUnit(low)} to ${withUnit(high)}; ` +
    `most, ${grouped(most)}, are ${range(highest)}.`;
  const bars = counts.map((count, i) => {
    const title = `${range(i)}: ${counted(count, "element")}`;
    const style = `--share: ${most ? count / most : 0}`;
    return h(count ? "span.fxi-bin" : "span.fxi-bin.fxi-bin-empty", { title, style });
  });
  return h("div.fxi-histogram", [
    h("div.fxi-bins", { role: "img", "aria-label": words }, bars),
    h(
      "div.fxi-ends.fxi-muted",
      { "aria-hidden": "true" },
      h("span", withUnit(low)),
      h("span", withUnit(high)),
    ),
  ]);
}
