/** Bytes at nodes as stacked areas, above their table. */

import { fill, h, s } from "../base/dom";
import { withUnit } from "../base/format";
import type { Chart } from "../base/wire";

const HEIGHT = 100;
const COLOURS = "module-line io-line mark-0 call-line grp-line mark-2 attr-line mark-1".split(" ");

/** Draws a chart; a click leads to the node there, which hovering names. */
export function stackedChart({ names, kinds, before }: Chart, jump: (name: string) => void): HTMLElement {
  const sums = names.map((_, i) => kinds.reduce((sum, { values }) => sum + (values[i] ?? 0), 0));
  const top = Math.max(...sums, before ?? 0) || 1;
  const peak = sums.indexOf(Math.max(...sums));
  const y = (bytes: number): number => HEIGHT * (1 - bytes / top);
  const below = names.map(() => 0);
  const areas = kinds.map(({ title, values }, number) => {
    const lower = [...below];
    values.forEach((value, i) => (below[i]! += value));
    const edge = (heights: number[]): string[] =>
      heights.flatMap((bytes, i) => [`${i} ${y(bytes)}`, `${i + 1} ${y(bytes)}`]);
    const points = [...edge(below), ...edge(lower).reverse()];
    return s("polygon", { points: points.join(" "), style: colourOf(number), "aria-label": title });
  });
  const cursor = s("rect.fxi-chart-cursor", { y: 0, width: 1, height: HEIGHT });
  const told = h("p.fxi-chart-words");
  const tell = (at: number): void => {
    const parts = kinds
      .filter(({ values }) => values[at])
      .map(({ title, values }) => `${withUnit(values[at]!, "B")} ${title.toLowerCase()}`);
    const sum = withUnit(sums[at] ?? 0, "B");
    const where = at === peak ? "Peak" : `Node ${at + 1} of ${names.length}`;
    told.textContent = `${where}: ${names[at] ?? ""}, ${sum}: ${parts.join(", ")}`;
    cursor.setAttribute("x", String(at));
  };
  const svg = s("svg.fxi-chart", {
    viewBox: `0 0 ${names.length} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "Bytes that are alive at each node; the table below has the numbers",
  });
  const mark = s("line.fxi-chart-peak", { x1: peak + 0.5, x2: peak + 0.5, y1: 0, y2: HEIGHT });
  const was = before === null ? null : y(before);
  const level = was !== null && s("line.fxi-chart-before", { x1: 0, x2: names.length, y1: was, y2: was });
  fill(svg, areas, cursor, mark, level);
  const nodeAt = (event: MouseEvent): number => {
    const { left, width } = svg.getBoundingClientRect();
    const at = Math.floor(((event.clientX - left) / width) * names.length);
    return Math.min(Math.max(at, 0), names.length - 1);
  };
  svg.addEventListener("pointermove", (event) => tell(nodeAt(event)));
  svg.addEventListener("pointerleave", () => tell(peak));
  svg.addEventListener("click", (event) => jump(names[nodeAt(event)]!));
  tell(peak);
  const legend = kinds.map(({ title }, i) => h("li", h("i", { style: colourOf(i) }), title));
  legend.unshift(h("li", h("i.fxi-area-peak"), "Peak"));
  if (before !== null) legend.push(h("li", h("i.fxi-area-before"), "Peak of the original"));
  const axis = h("div.fxi-chart-axis.fxi-small.fxi-muted", { "aria-hidden": "true" }, [
    [1, 0.5, 0].map((part) => h("span", withUnit(part * top, "B"))),
  ]);
  return h("figure.fxi-chart-frame", axis, svg, told, h("ul.fxi-chart-legend.fxi-wrap.fxi-muted", legend));
}

function colourOf(area: number): string {
  return `--fxi-area: var(--fxi-${COLOURS[area % COLOURS.length]})`;
}
