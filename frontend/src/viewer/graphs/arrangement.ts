/** How graphs are arranged; what people choose of it stays as it is from stage to stage. */

import type { Panes } from "./panes";
import type { Arrangement, ViewState } from "../../base/wire";

export const PLAIN: Arrangement = { direction: "down", shapes: false, lines: "alike", bookkeeping: false };

/** Returns the arrangement in a view, or what a view changes of it. */
export function arrangementIn(view: Partial<ViewState>, was: Arrangement): Arrangement {
  const { direction, shapes, lines, bookkeeping } = { ...was, ...view };
  return { direction, shapes, lines, bookkeeping };
}

/** Opens the groups of nodes that only serve others, or closes them. */
export function withBookkeeping(panes: Panes, isShown: boolean): Panes {
  const groups = panes.all
    .flatMap(({ scene }) => [...scene.hierarchy.groups.values()])
    .filter(({ data }) => data.kind === "bookkeeping");
  const opened = new Map(panes.opened);
  for (const { path } of groups)
    if (!isShown) opened.delete(path);
    else if (!opened.has(path)) opened.set(path, "");
  return panes.showing(opened);
}
