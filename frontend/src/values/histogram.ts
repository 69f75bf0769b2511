/** How the elements of a tensor are distributed, as bars. */

import { h } from "../base/dom";
import { counted, withUnit } from "../base/format";
import type { ValuePart } from "../base/wire";

/** Returns a bar for each bin, which says its count. */
export function histogram({ edges, counts }: ValuePart["histogram"]): HTMLElement {
  if (counts.length === 0) return h("p", { class: "fxi-muted" }, "No finite elements.");
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
    `most, ${most.toLocaleString("en-US")}, are ${range(highest)}.`;
  const bars = counts.map((count, i) => {
    const title = `${range(i)}: ${counted(count, "element")}`;
    const bar = h("span", { class: count ? "fxi-bin" : "fxi-bin fxi-bin-empty", title });
    bar.style.setProperty("--share", String(most ? count / most : 0));
    return bar;
  });
  return h(
    "div",
    { class: "fxi-histogram" },
    h("div", { class: "fxi-bins", role: "img", "aria-label": words }, bars),
    h(
      "div",
      { class: "fxi-ends", "aria-hidden": "true" },
      h("span", {}, withUnit(low)),
      h("span", {}, withUnit(high)),
    ),
  );
}
