/** The first page of a report on several graphs: a row for each, and what is said of all of them. */

import { type Child, h } from "../base/dom";
import { remarkItem } from "./trace_banner";
import type { WrittenContents, WrittenRow } from "../base/wire";

const COLUMNS = ["Graph", "Model", "Stages", "Nodes", "Verdict"];

/** Returns the page; `address` is that of a graph, by its number from 1. */
export function contentsPage(contents: WrittenContents, address: (number: number) => string): HTMLElement {
  const { title, notes, remarks, graphs, made } = contents;
  const areParts = graphs.some(({ ended }) => ended !== null);
  const columns = areParts ? [...COLUMNS, "Ends at"] : COLUMNS;
  return h("div.fxi-overview.fxi-column", [
    h("h1", title),
    notes.map((words) => h("p", words)),
    h("div.fxi-table-scroll.fxi-scroll", { tabindex: 0, role: "region", "aria-label": "Graphs" }, [
      h("table.fxi-table", [
        h("thead", h("tr", ...columns.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", ...graphs.map((row, i) => rowOf(row, address(i + 1), areParts))),
      ]),
    ]),
    remarks.length > 0 && [
      h("h2", "Remarks"),
      h("ul", [remarks.map((what) => remarkItem({ what, place: "", code: "", means: "", advice: "" }))]),
    ],
    h("p.fxi-muted", made),
  ]);
}

/** `isPart`: whether the graph is one of several that a compile made of one call. */
function rowOf(row: WrittenRow, address: string, isPart: boolean): HTMLElement {
  const { name, model, stages, verdict, agrees, reason, ended } = row;
  const nodes =
    row.nodesBefore === row.nodesAfter ? `${row.nodesBefore}` : `${row.nodesBefore} → ${row.nodesAfter}`;
  const judged = agrees === null ? "fxi-muted" : agrees ? "fxi-good" : "fxi-bad";
  const cell = (...children: Child[]): HTMLElement => h("td", ...children);
  return h("tr", [
    h("th", { scope: "row" }, h("a", { href: address }, name)),
    cell(model),
    cell(String(stages)),
    cell(nodes),
    h("td", { class: `fxi-judged ${judged}` }, [
      h("span", verdict),
      agrees !== true && reason && h("span.fxi-muted", reason),
    ]),
    isPart &&
      h("td", ended ? h("ul", remarkItem({ ...ended, means: "" })) : h("span", "the end of the code")),
  ]);
}
