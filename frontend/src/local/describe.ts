/** The details of a node, a group or the model; the twin of `fxlab.view_model.details`. */

import type { Details, Link } from "../base/protocol";
import type { BareDetails, SessionData } from "./data";
import type { Group } from "./hierarchy";
import type { Panes, Selection } from "./panes";
import type { Scene } from "./scene";

const MOST_LINKS = 100;

/** Returns what is selected, or the model as a whole, in all details. */
export function describe(data: SessionData, panes: Panes, selection: Selection | null): Details {
  if (!selection) return complete(data, data.groups[panes.scene.graph.details]!, panes.scene, null, null);
  const { scene } = panes.pane(selection.before);
  const sides = { before: selection.before, counterparts: panes.counterparts(selection) };
  if (selection.kind === "group") {
    const group = scene.hierarchy.groups.get(selection.name)!;
    return {
      ...complete(data, scene.detailsOf(group), scene, group.parent, panes.boxOf(selection)),
      ...sides,
    };
  }
  const { parent } = scene.hierarchy.leafOf.get(selection.name)!;
  return {
    ...complete(data, scene.nodes.get(selection.name)!, scene, parent, panes.boxOf(selection)),
    ...sides,
  };
}

/** Adds to details what is known of the nodes that they name. */
function complete(
  data: SessionData,
  bare: BareDetails,
  scene: Scene,
  around: Group | null,
  box: string | null,
): Details {
  const crumbs: Details["crumbs"] = [];
  for (let group = around; group?.parent; group = group.parent)
    crumbs.unshift({ label: data.looks[group.opened]!.label.slice(0, 80), path: group.path });
  const { frames, inputs, users, classes, ...rest } = bare;
  const link = (name: string): Link => {
    const values = scene.nodes.get(name)?.values ?? [];
    return { name, text: values.length === 1 ? values[0]!.shape : "" };
  };
  return {
    ...rest,
    box,
    crumbs,
    inputs: inputs.slice(0, MOST_LINKS).map(link),
    users: users.map(link),
    ...(frames ? { frames: frames.map((number) => data.frames[number]!) } : {}),
  };
}
