/** The details of a node, a group or the model: what is known here, and what the kernel says beyond that. */

import { grouped } from "../../base/format";
import type { Details, Link } from "../../base/protocol";
import type { Data, Facts } from "../graphs/data";
import type { Group } from "../graphs/hierarchy";
import type { Panes } from "../graphs/panes";
import type { Scene } from "../graphs/scene";
import type { Extra, Selected } from "../../base/wire";
import { objectWith } from "../../base/read_message";
import type { Kernel } from "../kernels/kernel";

const MOST_LINKS = 100;
const LONGEST_LINK = 120;
const CHANGED_NODES = "Changed nodes";
const DIFFERENT_NODES = "Nodes that differ";
/** After which of the fields known here those of the kernel stand. */
const BEFORE_EXTRA = new Set(["Op", "Target", "Module", "Class", "Path", "Nodes"]);

type Field = Details["fields"][number];

/**
 * Returns what is selected, or the model as a whole; `extra` is what the kernel says, if it has. Where stages are
 * compared, marks are what became of nodes.
 */
export function describe(
  data: Data,
  panes: Panes,
  selection: Selected | null,
  extra: Extra | null = null,
  isCompared = false,
): Details {
  if (!selection) return ofModel(panes.scene);
  const { scene } = panes.pane(selection.pane);
  const own =
    selection.kind === "group"
      ? ofGroup(data, scene, scene.hierarchy.groups.get(selection.name)!, isCompared)
      : ofNode(data, scene, scene.nodes.get(selection.name)!);
  const fields = own.fields.filter(({ label }) => BEFORE_EXTRA.has(label));
  const last = own.fields.filter(({ label }) => !BEFORE_EXTRA.has(label));
  return {
    ...own,
    ...extra,
    fields: [...fields, ...(extra?.fields ?? []), ...last],
    ...(isCompared && { became: becameOf(data, scene, selection) }),
    isPartial: extra === null,
    box: panes.boxOf(selection),
    pane: selection.pane,
    counterparts: panes.counterpartsOf(selection),
  };
}

function ofModel(scene: Scene): Details {
  const { inputs, ...model } = scene.graph.model;
  return {
    kind: "model",
    box: null,
    subtitle: "traced model",
    crumbs: [],
    users: [],
    marks: [],
    ...model,
    inputs: links(scene, inputs),
  };
}

function ofGroup(data: Data, scene: Scene, group: Group, isCompared: boolean): Details {
  const { path, data: written } = group;
  const { changed } = data.look(group.closed)!;
  const nodes = scene.hierarchy.nodesIn(group);
  const names = new Set(nodes.map(({ name }) => name));
  const read = nodes.flatMap(({ inputs }) => inputs).filter((name) => !names.has(name));
  const drawn = scene.hierarchy.leaves.slice(group.start, group.stop).filter((leaf) => leaf.facts.length > 0);
  const made = drawn
    .map((leaf) => leaf.name)
    .filter((name) => scene.usersOf(name).some((user) => !names.has(user)));
  return {
    kind: "group",
    box: null,
    title: written.label,
    path,
    subtitle: written.className || "group",
    crumbs: crumbsOf(group.parent),
    fields: [
      field("Path", path, true),
      field("Class", written.className, true),
      field("Nodes", grouped(written.count)),
      field(isCompared ? DIFFERENT_NODES : CHANGED_NODES, changed > 0 ? grouped(changed) : ""),
    ].filter(({ value }) => value),
    inputs: links(scene, [...new Set(read)]),
    users: links(scene, made),
    // Not those of its look, which are what became of its nodes where stages are compared.
    marks: [...new Set(nodes.flatMap((node) => node.marks))].sort(),
  };
}

/** Returns what became of a node, or of nodes of a group, where stages are compared. */
function becameOf(data: Data, { hierarchy, signatures }: Scene, { kind, name }: Selected): string[] {
  const look = kind === "group" ? hierarchy.groups.get(name)!.closed : hierarchy.leafOf.get(name)!.look;
  return data.look(look)!.marks.map((mark) => signatures[mark]!);
}

function ofNode(data: Data, scene: Scene, node: Facts): Details {
  const { name, op, target, module, owner, values, marks } = node;
  return {
    kind: "node",
    box: null,
    title: name,
    name,
    subtitle: op,
    crumbs: crumbsOf(scene.hierarchy.leafOf.get(name)!.parent),
    fields: [
      field("Op", op, true),
      field("Target", target, true),
      field("Module", op === "call_module" && module === target ? "" : module, true),
      field("Class", owner, true),
    ].filter(({ value }) => value),
    values,
    inputs: links(scene, node.inputs),
    users: links(scene, scene.usersOf(name)),
    marks,
    frames: node.frames.map((number) => data.frames[number]!),
  };
}

function field(label: string, value: string, code = false): Field {
  return { label, value, code };
}

function links(scene: Scene, names: string[]): Link[] {
  return names.slice(0, MOST_LINKS).map((name) => {
    const values = scene.nodes.get(name)?.values ?? [];
    return { name, text: values.length === 1 ? values[0]!.shape.slice(0, LONGEST_LINK) : "" };
  });
}

function crumbsOf(around: Group | null): Details["crumbs"] {
  const crumbs: Details["crumbs"] = [];
  for (let group = around; group?.parent; group = group.parent)
    crumbs.unshift({ label: group.data.label.slice(0, 80), path: group.path });
  return crumbs;
}

export class Extras {
  /** By graph, kind and name. */
  private known = new Map<string, Extra>();
  private asking = new Set<string>();

  constructor(private readonly kernel: Kernel) {}

  /** Forgets everything: the session has changed. */
  clear(): void {
    this.known = new Map();
    this.asking = new Set();
  }

  /** Returns what has been said; a report has it among its data. */
  of(data: Data, scene: Scene, { kind, name }: Selected): Extra | null {
    const { extras } = scene.graph;
    if (!extras) return this.known.get(`${scene.number} ${kind} ${name}`) ?? null;
    const place =
      kind === "group"
        ? extras.groups[name]
        : extras.nodes[scene.hierarchy.nodes.findIndex((node) => node.name === name)];
    return data.extras[place!] ?? null;
  }

  /** Asks for it, unless it is being asked for; returns whether it is known now. */
  async ask({ number }: Scene, { kind, name }: Selected): Promise<boolean> {
    const { known, asking } = this;
    const question = `${number} ${kind} ${name}`;
    if (this.kernel.isFixed || asking.has(question)) return false;
    asking.add(question);
    try {
      const { value } = await this.kernel.ask({ type: "details", graph: number, kind, name });
      if (known !== this.known || !isExtra(value)) return false;
      known.set(question, value);
      return true;
    } finally {
      asking.delete(question);
    }
  }
}

function isExtra(value: unknown): value is Extra {
  return Array.isArray(objectWith(value, "fields")?.["fields"]);
}
