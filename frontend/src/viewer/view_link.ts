/** A view in the fragment of a report's address, so that a link or a bookmark restores it. */

import type { ViewState } from "../base/wire";
import { PLAIN } from "./graphs/panes";

export const VIEW_AT_FIRST: ViewState = {
  ...{ stage: null, compared: "", beside: false, between: [] },
  ...{ opened: null, query: "", overlay: "", selected: null },
  ...PLAIN,
};

const KEYS = "stage compare beside between open query colours node group pane lines shapes styles all".split(
  " ",
);
const BELOW = "below";
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

/** Returns the view of a fragment; throws an error that says what is wrong with one that holds none. */
export function viewOf(fragment: string): ViewState {
  const text = fragment.replace(/^#/, "");
  const fields = new URLSearchParams(text);
  for (const [key, value] of fields) {
    if (!KEYS.includes(key)) throw new Error(`Unknown field "${key.slice(0, 40)}".`);
    if (value.length > LONGEST) throw new Error(`The field "${key}" is too long.`);
    if (key !== "open" && fields.getAll(key).length > 1)
      throw new Error(`The field "${key}" occurs more than once.`);
  }
  const [stage, compare] = [fields.get("stage"), fields.get("compare")];
  const kinds = (["node", "group"] as const).filter((kind) => fields.get(kind));
  if (kinds.length > 1) throw new Error("A view selects a node or a group, and not both.");
  const [kind] = kinds;
  const opened = fields.getAll("open").filter(Boolean);
  return {
    stage: stage === null ? null : numberIn(stage, "stage"),
    compared: compare === null ? "" : compare === BELOW ? BELOW : numberIn(compare, "compare"),
    beside: flagIn(fields.get("beside"), "beside", "1"),
    between: (fields.get("between") ?? "")
      .split(",")
      .filter(Boolean)
      .map((text) => numberIn(text, "between")),
    opened: fields.has("open") ? opened : null,
    query: fields.get("query") ?? "",
    overlay: fields.get("colours") ?? "",
    selected: kind
      ? { kind, name: fields.get(kind)!, pane: numberIn(fields.get("pane") ?? "0", "pane") }
      : null,
    direction: flagIn(fields.get("lines"), "lines", "right") ? "right" : "down",
    shapes: flagIn(fields.get("shapes"), "shapes", "1"),
    lines: stylesIn(fields.get("styles") ?? "alike"),
    bookkeeping: flagIn(fields.get("all"), "all", "1"),
  };
}

function numberIn(text: string, field: string): number {
  if (!/^\d{1,9}$/.test(text))
    throw new Error(`The field "${field}" must be the number of a ${field === "pane" ? field : "stage"}.`);
  return Number(text);
}

function stylesIn(text: string): ViewState["lines"] {
  if (text === "alike" || text === "dtype" || text === "bytes") return text;
  throw new Error('The field "styles" must be "dtype" or "bytes".');
}

function flagIn(text: string | null, field: string, on: string): boolean {
  if (text !== null && text !== on) throw new Error(`The field "${field}" must be "${on}".`);
  return text === on;
}
