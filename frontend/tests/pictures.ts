/** Small pictures, as the kernel would send them. */

import type { Box, Picture } from "../src/base/protocol";

function box(id: string, rest: Partial<Box>): Box {
  return {
    kind: "op",
    label: id,
    path: "",
    node: id,
    count: 1,
    details: [],
    openable: false,
    changed: 0,
    marks: [],
    refersTo: "",
    belongsTo: "",
    ...rest,
  };
}

/** Returns a column of boxes; each is read by the one below it. */
export function column(ids: string[], rest: Record<string, Partial<Box>> = {}, compared = true): Picture {
  const rectangle = (id: string, i: number): string =>
    `<g id="${id}" class="node"><rect class="fx-shape" x="0" y="${60 * i}" width="80" height="30"/><text class="fx-title">${id}</text></g>`;
  const pairs = ids.slice(1).map((id, i) => [ids[i]!, id] as const);
  const edge = ([source, target]: readonly [string, string]): string =>
    `<g id="${source}-${target}" class="edge"><path d="M0 0L1 1"/></g>`;
  return {
    svg: `<svg xmlns="http://www.w3.org/2000/svg" width="100" height="400"><g class="graph" transform="translate(4 4)">${ids.map(rectangle).join("")}${pairs.map(edge).join("")}</g></svg>`,
    width: 100,
    height: 60 * ids.length,
    boxes: Object.fromEntries(ids.map((id) => [id, box(id, rest[id] ?? {})])),
    edges: Object.fromEntries(
      pairs.map(([source, target]) => [`${source}-${target}`, { source, target, label: "" }]),
    ),
    signatures: ["added", "removed", "changed", "rewired"],
    numbers: [null, null, null, null],
    lines: null,
    matches: {},
    compared,
  };
}
