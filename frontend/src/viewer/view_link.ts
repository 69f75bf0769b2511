/** A view in the fragment of a report's address, so that a link or a bookmark restores it. */

import type { ViewState } from "../base/wire";
import { PLAIN } from "./graphs/panes";

export const VIEW_AT_FIRST: ViewState = {
  ...{ stage: null, compared: "", beside: false, between: [] },
  ...{ opened: null, query: "", overlay: "", selected: null },
  ...PLAIN,
};

const LINES: ViewState["lines"][] = ["dtype", "bytes"];
const LONGEST = 20_000;

/** Returns the number of a graph that a fragment begins with, 0 if with none, and what it says of the view. */
export function partsOf(fragment: string): { graph: number; view: string } {
  const text = fragment.replace(/^#/, "");
  const found = /^graph=(\d{1,9})(?:&|$)/.exec(text);
  return { graph: Number(found?.[1] ?? 0), view: text.slice(found?.[0].length ?? 0) };
}

/** Returns a view as a fragment without its `#`, with what differs from a first view; empty for that one. */
export function fragmentOf(view: ViewState): string {
  const { stage, compared, beside, between, opened, query, overlay, selected } = view;
  const fields = new URLSearchParams();
  if (stage !== null) fields.set("stage", String(stage));
  if (compared !== "") fields.set("compare", String(compared));
  if (beside) fields.set("beside", "1");
  if (between.length > 0) fields.set("between", between.join());
  // None at all is something else than those that a first view has open.
  for (const path of opened?.length === 0 ? [""] : (opened ?? [])) fields.append("open", path);
  if (query) fields.set("query", query);
  if (overlay) fields.set("colours", overlay);
  if (selected) fields.set(selected.kind, selected.name);
  if (selected?.pane) fields.set("pane", String(selected.pane));
  if (view.direction === "right") fields.set("lines", "right");
  if (view.shapes) fields.set("shapes", "1");
  if (view.lines !== "alike") fields.set("styles", view.lines);
  if (view.bookkeeping) fields.set("all", "1");
  return fields.toString();
}

/** Returns the view of a fragment; throws an error that names the field which says nothing of one. */
export function viewOf(fragment: string): ViewState {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const get = (key: string): string => fields.get(key) ?? "";
  const compared = get("compare");
  const kind = (["node", "group"] as const).find((kind) => fields.has(kind));
  const view: ViewState = {
    stage: fields.has("stage") ? numberIn(get("stage")) : null,
    compared: compared === "" || compared === "below" ? compared : numberIn(compared),
    beside: fields.has("beside"),
    between: get("between").split(",").filter(Boolean).map(numberIn),
    opened: fields.has("open") ? fields.getAll("open").filter(Boolean) : null,
    query: get("query"),
    overlay: get("colours"),
    selected: kind ? { kind, name: get(kind), pane: numberIn(get("pane") || "0") } : null,
    direction: fields.has("lines") ? "right" : "down",
    shapes: fields.has("shapes"),
    lines: LINES.find((lines) => lines === get("styles")) ?? "alike",
    bookkeeping: fields.has("all"),
  };
  // What is right is written as it was.
  const written = new URLSearchParams(fragmentOf(view));
  for (const [key, value] of fields)
    if (value.length > LONGEST || !written.has(key) || `${fields.getAll(key)}` !== `${written.getAll(key)}`)
      throw new Error(`"${`${key}=${value}`.slice(0, 60)}" is not a field of a view.`);
  return view;
}

/** Returns a number; NaN if a text is none. */
function numberIn(text: string): number {
  return /^\d{1,9}$/.test(text) ? Number(text) : NaN;
}
