/** What people ask of the viewer: what is being done, in words, and what is the session's. */

import type { ToSession, ToViewer } from "../base/protocol";

const DOING: Partial<Record<ToViewer["type"], string>> = {
  open: "Opening the group",
  close: "Closing the group",
  "open-level": "Opening the groups",
  arrange: "Arranging the graph",
  overview: "Closing the groups",
  "select-node": "Selecting the node",
  "select-group": "Selecting the group",
  search: "Searching",
  filter: "Filtering the graph",
  "export-file": "Exporting the graph",
  light: "Showing the nodes",
  "nodes-of": "Selecting the nodes",
  "show-stage": "Showing the stage",
  "show-node": "Showing the node",
  "show-overlay": "Showing the overlay",
  "add-overlays": "Reading the overlay",
  "show-code": "Showing the code",
  "show-values": "Computing the values",
  "show-part": "Reading the values",
};

/** Says what is being done, for errors. */
export function doing(type: ToViewer["type"]): string {
  return DOING[type] ?? "The request";
}

/** By type, so that a message that is new has to be put on one side. */
const FOR_SESSION: Record<ToSession["type"], true> = {
  toggle: true,
  "set-option": true,
  preview: true,
  exclude: true,
  include: true,
  "apply-up-to": true,
  "add-relaxed": true,
  "add-others": true,
  reload: true,
  move: true,
  add: true,
  remove: true,
  undo: true,
  redo: true,
  reset: true,
  refresh: true,
  judge: true,
  "end-preview": true,
  measure: true,
  "open-batch": true,
};

export function isForSession(message: ToViewer): message is ToSession {
  return Object.hasOwn(FOR_SESSION, message.type);
}
