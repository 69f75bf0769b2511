/** The graphs on the screen: one, or several in a row in which the same groups are open. */

import type { SelectedNodes } from "../../base/protocol";
import { Group, type Leaf } from "./hierarchy";
import type { Scene } from "./scene";
import { View } from "./view";
import type { Arrangement, Metrics, Selected, ViewState } from "../../base/wire";
import type { Counterparts } from "./graphs";

const MOST_COUNTERPARTS = 500;

/**
 * Path of a group that is open -> on whose behalf: a pass by its key, `FOUND`, `CHANGES`, `LIT`, or a person, who has no
 * name. What a person has opened stays open, also while a graph has no such group.
 */
export type Opened = ReadonlyMap<string, string>;
const PERSON = "";
/** Groups that hold what a query finds, what is different between two stages, and what is lit up. */
export const FOUND = "what is found";
export const CHANGES = "changes";
export const LIT = "what is lit up";

export interface Pane {
  scene: Scene;
  view: View;
}

/** What is open never changes: opening a group gives other panes. */
export class Panes {
  readonly all: Pane[];

  /** `scenes` are by the numbers of their panes. */
  constructor(
    private readonly metrics: Metrics,
    readonly scenes: Scene[],
    readonly counterparts: Counterparts | null,
    readonly opened: Opened,
  ) {
    this.all = scenes.map((scene) => ({ scene, view: new View(scene.hierarchy, opened, metrics) }));
  }

  get shown(): Pane {
    return this.all[0]!;
  }

  get scene(): Scene {
    return this.shown.scene;
  }

  pane(number: number): Pane {
    const pane = this.all[number];
    if (!pane) throw new Error("No such stage is shown beside another.");
    return pane;
  }

  showing(opened: Opened): Panes {
    return new Panes(this.metrics, this.scenes, this.counterparts, opened);
  }

  /** Shows these groups open, as a person wants it. */
  showingPaths(paths: string[]): Panes {
    return this.showing(new Map(paths.map((path) => [path, this.opened.get(path) ?? PERSON])));
  }

  /** Closes what was opened on somebody's behalf, unless a person has opened something inside. */
  forget(why: string): Panes {
    const needed = new Set<string>();
    for (const [path, other] of this.opened) {
      if (other === why) continue;
      for (const { scene } of this.all)
        for (let around = scene.hierarchy.groups.get(path)?.parent; around; around = around.parent)
          needed.add(around.path);
    }
    return this.showing(
      new Map([...this.opened].filter(([path, other]) => other !== why || needed.has(path))),
    );
  }

  /** Opens a group and those around it, wherever it is; a chain of lone modules opens as one. */
  open(path: string): Panes {
    const opened = new Map(this.opened);
    for (const group of this.groups(path).flatMap((one) => this.withPartner(one))) {
      for (let around: Group | null = group; around?.parent; around = around.parent)
        opened.set(around.path, PERSON);
      for (
        let inside = group.children;
        inside.length === 1 && inside[0] instanceof Group && inside[0].data.kind === "module";
        inside = inside[0].children
      )
        opened.set(inside[0].path, PERSON);
    }
    return this.showing(opened);
  }

  close(path: string): Panes {
    const closed = this.groups(path).flatMap((one) => this.withPartner(one));
    const isInside = (group: Group | null | undefined): boolean =>
      group != null && (closed.includes(group) || isInside(group.parent));
    return this.showing(
      new Map(
        [...this.opened].filter(
          ([other]) => !this.all.some(({ scene }) => isInside(scene.hierarchy.groups.get(other))),
        ),
      ),
    );
  }

  /** Opens every group that is visible and closed, as long as that makes no more boxes than the budget. */
  openLevel(budget: number): Panes {
    const closed = this.all.flatMap(({ view }) =>
      view.boxes.filter((box): box is Group => box instanceof Group && box.data.kind !== "bookkeeping"),
    );
    const panes = this.showing(
      new Map([...this.opened, ...closed.map(({ path }) => [path, PERSON] as const)]),
    );
    const boxes = Math.max(...panes.all.map(({ view }) => view.boxes.length));
    if (closed.length > 0 && boxes > budget)
      throw new Error(`There would be ${boxes} boxes. Open the groups that matter one by one.`);
    return panes;
  }

  /** Closes the groups that are deepest inside of others. */
  closeLevel(): Panes {
    const depths = new Map<string, number>();
    const depth = ({ parent }: Group): number => (parent ? 1 + depth(parent) : 0);
    for (const { view } of this.all) for (const group of view.clusters) depths.set(group.path, depth(group));
    const deepest = Math.max(...depths.values());
    return this.showing(new Map([...this.opened].filter(([path]) => depths.get(path) !== deepest)));
  }

  /**
   * Opens the groups around nodes of a pane, as long as there are no more boxes than the budget. Of equal blocks with
   * nodes at the same places one is opened: the others would look the same.
   */
  reveal(names: string[], pane: number, why = PERSON, budget = Infinity): Panes {
    const { scene, view } = this.pane(pane);
    const opened = new Map(this.opened);
    let boxes = view.boxes.length;
    for (const name of unlike(names, scene, this.opened)) {
      for (const group of scene.hierarchy.around(name)) {
        if (opened.has(group.path)) continue;
        // A pass that adds a check would make bookkeeping the largest box.
        if (why !== PERSON && group.data.kind === "bookkeeping") break;
        const both = [group, ...scene.hierarchy.opensWith(group)].filter(({ path }) => !opened.has(path));
        const more = both.reduce((sum, { children }) => sum + children.length - 1, 0);
        if (boxes + more > budget) break;
        for (const { path } of both) opened.set(path, why);
        boxes += more;
      }
    }
    return this.showing(opened);
  }

  /** Opens the groups around nodes on somebody's behalf, if that makes no large picture. */
  revealFor(why: string, names: string[], pane: number): Panes {
    const budget = Math.max(this.metrics.revealBudget, this.pane(pane).view.boxes.length);
    return this.reveal(names, pane, why, budget);
  }

  /** Opens the groups around a node, and those around its counterparts. */
  uncover({ name, pane }: Selected): Panes {
    return this.all.reduce<Panes>(
      (panes, _, other) => panes.reveal(this.namesIn(other, [name], pane), other),
      this,
    );
  }

  /** Returns the selection of a node; one that is gone from a pane is found in another. */
  find(name: string, pane: number): Selected {
    const found = [pane, ...this.all.keys()]
      .map((other): Selected => ({ kind: "node", name, pane: other }))
      .find((selection) => this.holds(selection));
    if (!found) throw new Error(`This stage has no node named ${name.slice(0, 200)}.`);
    return found;
  }

  holds({ kind, name, pane }: Selected): boolean {
    if (name === "" || !this.all[pane]) return false;
    const { groups, leafOf } = this.pane(pane).scene.hierarchy;
    return kind === "group" ? groups.has(name) : leafOf.has(name);
  }

  /** Whether a selected node has a box of its own on the screen, or one that bears its name. */
  isVisible({ name, pane }: Selected): boolean {
    const { scene, view } = this.pane(pane);
    return scene.hierarchy.around(name).every((group) => view.isCluster(group));
  }

  /** Returns the visible box that stands for a selection. */
  boxOf({ kind, name, pane }: Selected): string | null {
    const { scene, view } = this.pane(pane);
    return kind === "node" ? view.boxOf(name) : boxOfGroup(scene.hierarchy.groups.get(name), view);
  }

  /** Returns the names of selected nodes in the stage that is shown, and in the one that it is compared with. */
  nodesOf(selection: Selected): SelectedNodes {
    const names = this.selectedNames(selection);
    const of = (pane: number): string[] =>
      this.all[pane] ? this.namesIn(pane, names, selection.pane) : names;
    return { shown: of(0), before: of(1) };
  }

  /** Returns, for each pane, the visible boxes in it that stand for a selection in another. */
  counterpartsOf(selection: Selected): string[][] {
    const names = this.selectedNames(selection);
    return this.all.map(({ scene, view }, pane) => {
      if (pane === selection.pane) return [];
      const { groups } = scene.hierarchy;
      const box = selection.kind === "group" ? boxOfGroup(groups.get(selection.name), view) : null;
      if (box !== null) return [box];
      const boxes = this.namesIn(pane, names, selection.pane).flatMap((name) => view.boxOf(name) ?? []);
      return [...new Set(boxes)].slice(0, MOST_COUNTERPARTS);
    });
  }

  private selectedNames({ kind, name, pane }: Selected): string[] {
    const { hierarchy } = this.pane(pane).scene;
    const group = kind === "group" ? hierarchy.groups.get(name) : undefined;
    return group ? hierarchy.nodesIn(group).map((node) => node.name) : [name];
  }

  /** Returns what stands for nodes of a pane in another. */
  private namesIn(pane: number, names: string[], from: number): string[] {
    // The stage that is shown comes last in the row.
    const [here, there] = [from, pane].map((number) => (number || this.all.length) - 1) as [number, number];
    return here === there ? names : this.counterparts!.of(names, here, there);
  }

  /** Returns a group, and that of the other pass of its module in a training step. */
  private withPartner(group: Group): Group[] {
    const owner = this.all.find(({ scene }) => scene.hierarchy.groups.get(group.path) === group)!;
    return [group, ...owner.scene.hierarchy.opensWith(group)];
  }

  private groups(path: string): Group[] {
    const found = path ? this.all.flatMap(({ scene }) => scene.hierarchy.groups.get(path) ?? []) : [];
    if (found.length === 0) throw new Error(`This stage has no group ${path.slice(0, 200)}.`);
    return found;
  }
}

/**
 * Returns the names in order, without those in blocks that are like one whose names are returned, and not open; the
 * twin of `View._unlike` of `fxlab.drawing.view`.
 */
function unlike(names: string[], scene: Scene, opened: Opened): string[] {
  const { root, leafOf } = scene.hierarchy;
  const marked = [...new Set(names.flatMap((name) => leafOf.get(name) ?? []))];
  marked.sort((a, b) => a.position - b.position);
  const found: Leaf[] = [];
  const walk = (group: Group, leaves: Leaf[]): void => {
    const alike = new Map<string, [Group, Leaf[]][]>();
    let next = 0;
    for (const item of members(group)) {
      const stop = item instanceof Group ? item.stop : item.position + 1;
      const first = next;
      while (next < leaves.length && leaves[next]!.position < stop) next += 1;
      const inside = leaves.slice(first, next);
      if (inside.length === 0) continue;
      if (!(item instanceof Group)) {
        found.push(...inside);
        continue;
      }
      const { kind, className: name, size } = item.data;
      const places = inside.map((leaf) => [leaf.position - item.start, ...scene.marksOf(leaf)]);
      const key = kind === "module" ? JSON.stringify([name, size, places]) : item.path;
      alike.set(key, [...(alike.get(key) ?? []), [item, inside]]);
    }
    for (const blocks of alike.values()) {
      const open = blocks.filter(([{ path }]) => opened.has(path));
      for (const block of open.length > 0 ? open : blocks.slice(0, 1)) walk(...block);
    }
  };
  walk(root, marked);
  return found.sort((a, b) => a.position - b.position).map(({ name }) => name);
}

/** Returns what is in a group; in place of a list of blocks, its blocks. */
function members(group: Group): (Group | Leaf)[] {
  return group.children.flatMap((child) =>
    child instanceof Group && ["repeat", "segment"].includes(child.data.kind) ? members(child) : [child],
  );
}

function boxOfGroup(group: Group | undefined, view: View): string | null {
  return group && (view.boxes.includes(group) || view.clusters.includes(group)) ? group.id : null;
}

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
