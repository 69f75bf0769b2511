/** What answers the inspector where there is no kernel: the graphs of a report, drawn in the page itself. */

import type { Model } from "../app";
import type { Box, Cell, Comparison, Details, Edge, FromKernel, Link, Picture, Stages, State, ToKernel } from "../protocol";
import { painting } from "../saved_picture";
import { placeBoxes } from "./boxes";
import { combined } from "./combine";
import type { BareDetails, SessionData } from "./data";
import { toDot } from "./dot";
import { Group, Hierarchy, type Leaf } from "./hierarchy";
import type { Layouts } from "./layout";
import { Search } from "./search";
import { writeSvg } from "./svg";
import { View } from "./view";

const FEW_LABELS = 3;
type Listener = (...values: never[]) => void;
type Selection = { kind: "node" | "group"; name: string };

/** One graph of the report, with what is looked up in it; made when it is first shown. */
class Scene {
  readonly hierarchy: Hierarchy;
  readonly nodes: Map<string, BareDetails>;
  private found: Search | null = null;

  constructor(
    private readonly data: SessionData,
    readonly number: number,
  ) {
    const graph = data.graphs[number]!;
    this.hierarchy = new Hierarchy(graph);
    this.nodes = new Map(graph.nodes.map((place) => [data.nodes[place]!.name!, data.nodes[place]!]));
  }

  get search(): Search {
    this.found ??= new Search(this.hierarchy, [...this.nodes.values()], this.data.groups);
    return this.found;
  }
}

export class OfflineKernel implements Model {
  private readonly state: State;
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly scenes = new Map<number, Scene>();
  private scene: Scene;
  private view: View;
  private dot = "";
  private overlay = "";
  private opened: Set<string>;
  private selection: Selection | null = null;
  private queue: Promise<void> = Promise.resolve();
  private errors = 0;

  constructor(
    private readonly data: SessionData,
    private readonly layouts: Layouts,
  ) {
    const last = data.graphs.findIndex(({ stage, compared }) => stage === data.stages.length - 1 && !compared);
    this.scene = this.sceneOf(last);
    this.opened = new Set(data.graphs[last]!.opened);
    this.view = this.viewOf(this.opened);
    this.state = {
      picture: {} as Picture,
      before: {},
      passes: data.passes,
      tables: data.tables,
      measured: [],
      status: { busy: null, error: null },
      details: this.described(),
      stages: this.stages(),
      overlays: { offered: [], overlay: null, paints: data.paints },
      height: 0,
    };
  }

  /** Draws the first picture; the inspector may be shown before. */
  start(): Promise<void> {
    this.showOverlay();
    return this.attempt(() => this.draw(this.opened));
  }

  get<K extends keyof State>(name: K): State[K] {
    return this.state[name];
  }

  set<K extends keyof State>(name: K, value: State[K]): void {
    this.state[name] = value;
    this.emit(`change:${name}`);
  }

  save_changes(): void {}

  on(event: string, callback: Listener): void {
    if (!this.listeners.has(event)) this.listeners.set(event, new Set());
    this.listeners.get(event)!.add(callback);
  }

  off(event: string, callback: Listener): void {
    this.listeners.get(event)?.delete(callback);
  }

  send(message: ToKernel): void {
    // One after another, as a kernel would: each may need the picture that the one before it makes.
    this.queue = this.queue.then(() => this.attempt(() => this.answer(message))).then(() => this.tell({ type: "done" }));
  }

  private async attempt(action: () => Promise<void> | void): Promise<void> {
    try {
      await action();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.set("status", { busy: null, error: { number: (this.errors += 1), title: "That did not work", text } });
    }
  }

  private async answer(message: ToKernel): Promise<void> {
    switch (message.type) {
      case "open":
        return this.redraw(this.withOpened(message.path));
      case "close":
        return this.redraw(this.withClosed(message.path));
      case "overview":
        return this.redraw(new Set(this.data.graphs[this.scene.number]!.overview));
      case "select-node":
        return this.selectNode(message.name, message.show);
      case "select-group":
        return this.select({ kind: "group", name: message.path });
      case "clear-selection":
        return this.select(null);
      case "reveal-pass":
        return this.revealPass(message.signature);
      case "search":
        return this.tell({ type: "found", request: message.request, ...this.scene.search.find(message.query) });
      case "export-dot":
        return this.tell({ type: "dot", request: message.request, text: this.paintedDot() });
      case "show-stage":
        return this.showStage(message.stage, message.compared);
      case "show-overlay":
        this.overlay = message.name;
        return this.showOverlay();
      default:
        throw new Error("A report shows a session as it was. To switch passes, open the model with fxlab.inspect.");
    }
  }

  private async showStage(stage: number, compared: Comparison): Promise<void> {
    const number = this.data.graphs.findIndex((graph) => graph.stage === stage && graph.compared === compared);
    if (number < 0) throw new Error(compared ? "This report does not compare these two stages." : `There is no stage ${stage}.`);
    const before = this.scene;
    this.scene = this.sceneOf(number);
    try {
      await this.draw(new Set([...this.opened, ...this.data.graphs[number]!.opened]));
    } catch (error) {
      this.scene = before;
      throw error;
    }
    this.set("stages", this.stages());
    this.showOverlay();
    if (this.selection && !this.exists(this.selection)) this.selection = null;
    this.set("details", this.described());
  }

  private stages(): Stages {
    const { stage, compared } = this.data.graphs[this.scene.number]!;
    const comparisons = this.data.graphs.filter((graph) => graph.stage === stage && graph.compared).map((graph) => graph.compared);
    return { names: this.data.stages, shown: stage, compared, comparisons };
  }

  private showOverlay(): void {
    const { overlays, nodes } = this.data.graphs[this.scene.number]!;
    const offered = overlays.map(({ name, title }) => ({ name, title }));
    const chosen = overlays.find(({ name }) => name === this.overlay);
    if (!chosen) return this.set("overlays", { offered, overlay: null, paints: this.data.paints });
    const { combine, numeric } = chosen;
    const valueOf = new Map(nodes.map((place, i) => [this.data.nodes[place]!.name!, chosen.values[i] ?? null]));
    const { leaves } = this.scene.hierarchy;
    const values: Record<string, Cell> = {};
    for (const item of [...this.view.clusters, ...this.view.boxes]) {
      const drawn = item instanceof Group ? leaves.slice(item.start, item.stop) : [item];
      const value = combined(drawn.flatMap((leaf) => leaf.names.map((name) => valueOf.get(name) ?? null)), combine, numeric);
      if (value !== null) values[item.id] = value;
    }
    const overlay = { ...chosen, values, total: combined(chosen.values, combine, numeric) };
    this.set("overlays", { offered, overlay, paints: this.data.paints });
  }

  private async selectNode(name: string, show: boolean): Promise<void> {
    const leaf = this.scene.hierarchy.leafOf.get(name);
    if (!leaf) throw new Error(`This stage has no node named ${name.slice(0, 200)}.`);
    if (show && this.view.boxOf(name) !== leaf.id) await this.draw(this.revealed([name], Infinity));
    this.select({ kind: "node", name });
    if (show) this.focus([name]);
  }

  private async revealPass(signature: string): Promise<void> {
    const names = [...this.scene.nodes].filter(([, details]) => details.marks.includes(signature)).map(([name]) => name);
    await this.draw(this.revealed(names, Math.max(this.data.metrics.revealBudget, this.view.boxes.length)));
    this.focus(names);
  }

  private select(selection: Selection | null): void {
    if (selection && !this.exists(selection)) throw new Error(`This stage has no ${selection.kind} named ${selection.name.slice(0, 200)}.`);
    this.selection = selection;
    this.set("details", this.described());
  }

  private exists({ kind, name }: Selection): boolean {
    const { groups, leafOf } = this.scene.hierarchy;
    return name !== "" && (kind === "group" ? groups.has(name) : leafOf.has(name));
  }

  private focus(names: string[]): void {
    const boxes = new Set(names.flatMap((name) => this.view.boxOf(name) ?? []));
    this.tell({ type: "focus", boxes: [...boxes].slice(0, 500), gently: false, before: false });
  }

  private async redraw(opened: Set<string>): Promise<void> {
    await this.draw(opened);
    this.set("details", this.described());
  }

  /** Shows the graph with other groups opened; if that fails, everything stays as it was. */
  private async draw(opened: Set<string>): Promise<void> {
    const { looks, metrics } = this.data;
    const { signatures, compared } = this.data.graphs[this.scene.number]!;
    const view = this.viewOf(opened);
    const boxes = placeBoxes(view, looks, metrics);
    const edges = new Map(view.edges.map((edge) => [`edge-${edge.source.id}-${edge.target.id}`, this.edge(edge.source, edge.target, edge.leaves)]));
    const dot = toDot(view, boxes, metrics.edge);
    const drawn = writeSvg(await this.layouts.layOut(dot), boxes, edges, metrics);
    [this.opened, this.view, this.dot] = [opened, view, dot];
    const infos: [string, Box][] = [...boxes.values()].flatMap(({ id, box, chips }) => [[id, box], ...chips.map((chip): [string, Box] => [chip.id, chip.box])] as [string, Box][]);
    this.set("picture", { ...drawn, boxes: Object.fromEntries(infos), edges: Object.fromEntries(edges), signatures, compared: compared !== "", matches: this.matches(view) });
    if (this.overlay) this.showOverlay();
  }

  private paintedDot(): string {
    const { overlay, paints } = this.state.overlays;
    if (!overlay) return this.dot;
    const { looks, metrics } = this.data;
    return toDot(this.view, placeBoxes(this.view, looks, metrics), metrics.edge, painting(overlay, this.state.picture, paints));
  }

  private edge(source: Group | Leaf, target: Group | Leaf, leaves: Leaf[]): Edge & { count: number } {
    const shapes = [...new Set(leaves.map((leaf) => this.data.looks[leaf.look]!.result).filter(Boolean))];
    const label = shapes.length <= FEW_LABELS ? shapes.join(", ") : `${leaves.length} values`;
    return { source: source.id, target: target.id, label, count: leaves.length };
  }

  private matches(view: View): Picture["matches"] {
    const counted: Picture["matches"] = {};
    for (const [signature, names] of Object.entries(this.data.matches)) {
      const boxes: Record<string, number> = (counted[signature] = {});
      for (const box of names.flatMap((name) => view.boxOf(name) ?? [])) boxes[box] = (boxes[box] ?? 0) + 1;
    }
    return counted;
  }

  private viewOf(opened: Set<string>): View {
    return new View(this.scene.hierarchy, opened, this.data.metrics);
  }

  private sceneOf(number: number): Scene {
    let scene = this.scenes.get(number);
    if (!scene) this.scenes.set(number, (scene = new Scene(this.data, number)));
    return scene;
  }

  /** Opens a group and those around it; a chain of lone groups opens as one. */
  private withOpened(path: string): Set<string> {
    const opened = new Set(this.opened);
    const group = this.group(path);
    for (let around: Group | null = group; around?.parent; around = around.parent) opened.add(around.path);
    for (let inside = group.children; inside.length === 1 && inside[0] instanceof Group; inside = inside[0].children) opened.add(inside[0].path);
    return opened;
  }

  private withClosed(path: string): Set<string> {
    const { groups } = this.scene.hierarchy;
    const closed = this.group(path);
    const isInside = (group: Group | null): boolean => group !== null && (group === closed || isInside(group.parent));
    return new Set([...this.opened].filter((other) => !isInside(groups.get(other) ?? null)));
  }

  private revealed(names: string[], budget: number): Set<string> {
    const opened = new Set(this.opened);
    let boxes = this.view.boxes.length;
    for (const name of names) {
      for (const group of this.scene.hierarchy.around(name)) {
        if (opened.has(group.path)) continue;
        if (boxes + group.children.length - 1 > budget) break;
        opened.add(group.path);
        boxes += group.children.length - 1;
      }
    }
    return opened;
  }

  private group(path: string): Group {
    const group = path ? this.scene.hierarchy.groups.get(path) : undefined;
    if (!group) throw new Error(`This stage has no group ${path.slice(0, 200)}.`);
    return group;
  }

  private described(): Details {
    const { scene, selection, data } = this;
    if (!selection) return this.complete(data.graphs[scene.number]!.details, null, null);
    if (selection.kind === "group") {
      const group = this.group(selection.name);
      const isVisible = this.view.boxes.includes(group) || this.view.clusters.includes(group);
      return this.complete(data.groups[group.data.details]!, group.parent, isVisible ? group.id : null);
    }
    return this.complete(scene.nodes.get(selection.name)!, scene.hierarchy.leafOf.get(selection.name)!.parent, this.view.boxOf(selection.name));
  }

  /** Adds to details what is known of the nodes that they name. */
  private complete(bare: BareDetails, around: Group | null, box: string | null): Details {
    const crumbs: Details["crumbs"] = [];
    for (let group = around; group?.parent; group = group.parent) crumbs.unshift({ label: this.data.looks[group.data.opened]!.label.slice(0, 80), path: group.path });
    const { frames, inputs, users, ...rest } = bare;
    const link = (name: string): Link => {
      const values = this.scene.nodes.get(name)?.values ?? [];
      return { name, text: values.length === 1 ? values[0]!.shape : "" };
    };
    return { ...rest, box, crumbs, inputs: inputs.map(link), users: users.map(link), ...(frames ? { frames: frames.map((number) => this.data.frames[number]!) } : {}) };
  }

  private tell(message: FromKernel): void {
    this.emit("msg:custom", message);
  }

  private emit(event: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? []) (listener as (...values: unknown[]) => void)(...values);
  }
}
