/** What answers the inspector where there is no kernel: the graphs of a report, drawn in the page itself. */

import type { Model } from "../base/model";
import type {
  Box,
  Cell,
  Comparison,
  Details,
  Edge,
  FromKernel,
  Link,
  Overlay,
  Picture,
  Stages,
  State,
  ToKernel,
} from "../base/protocol";
import { paintings } from "../graph/saved_picture";
import { possible, titleOfStage } from "../graph/stage_bar";
import { placeBoxes } from "./boxes";
import { combined } from "./combine";
import { Counterparts } from "./counterparts";
import type { BareDetails, GraphData, PairData, SessionData } from "./data";
import { outline, sideBySide, toDot, type Side } from "./dot";
import { Group, type Leaf } from "./hierarchy";
import type { Layouts } from "./layout";
import { NodeFilter } from "./search/node_filter";
import { Panes, type Pane, type Selection } from "./panes";
import { Scene } from "./scene";
import { writeSvg } from "./svg";
import type { View } from "./view";

const FEW_LABELS = 3;
const MOST_LINKS = 100;
type Listener = (...values: never[]) => void;

/** Which stages are shown. */
interface Choice {
  stage: number;
  before: number | null;
  compared: Comparison;
}

export class OfflineKernel implements Model {
  private readonly state: State;
  private readonly listeners = new Map<string, Set<Listener>>();
  /** The graphs that were shown before: of a stage, of two as one, or of two. */
  private readonly known = new Map<GraphData | PairData, Pick<Panes, "scene" | "beside">>();
  private choice: Choice;
  private panes: Panes;
  private filter = new NodeFilter();
  private overlay = "";
  private selection: Selection | null = null;
  private queue: Promise<void> = Promise.resolve();
  private errors = 0;

  constructor(
    private readonly data: SessionData,
    private readonly layouts: Layouts,
  ) {
    const last = this.graphOf(data.stages.length - 1, null);
    this.choice = { stage: last.stage, before: null, compared: "" };
    this.panes = this.panesOf(last, last.opened);
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
      found: {},
      height: 0,
    };
  }

  /** Draws the first picture; the inspector may be shown before. */
  start(): Promise<void> {
    this.showOverlay();
    return this.attempt(() => this.draw(this.panes));
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
    this.queue = this.queue
      .then(() => this.attempt(() => this.answer(message)))
      .then(() => this.tell({ type: "done" }));
  }

  private async attempt(action: () => Promise<void> | void): Promise<void> {
    try {
      await action();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.set("status", {
        busy: null,
        error: { number: (this.errors += 1), title: "That did not work", text },
      });
    }
  }

  private async answer(message: ToKernel): Promise<void> {
    switch (message.type) {
      case "open":
        this.filter.keep(message.path);
        return this.redraw(this.panes.open(message.path));
      case "close":
        return this.redraw(this.panes.close(message.path));
      case "overview":
        return this.redraw(this.panes.showing(this.panes.scene.graph.overview));
      case "select-node":
        return this.selectNode(this.panes.find(message.name, message.before), message.show);
      case "select-group":
        return this.select({ kind: "group", name: message.path, before: message.before });
      case "clear-selection":
        return this.select(null);
      case "reveal-pass":
        return this.revealPass(message.signature);
      case "search":
        return this.tell({
          type: "found",
          request: message.request,
          ...this.panes.scene.search.find(message.query),
        });
      case "filter":
        return this.lightUp(message.query);
      case "export-dot":
        return this.tell({ type: "dot", request: message.request, text: this.dot() });
      case "show-stage":
        return this.showStage(message.stage, message.compared, message.beside);
      case "show-node":
        return this.showNode(message.name, message.stage);
      case "show-overlay":
        this.overlay = message.name;
        return this.showOverlay();
      default:
        throw new Error(
          "A report shows a session as it was. To switch passes, open the model with fxlab.inspect.",
        );
    }
  }

  private async showStage(stage: number, wanted: Comparison, beside: boolean): Promise<void> {
    const { opened } = this.panes;
    // A report of many stages does not compare any two: who walks through them comes to one that is not compared with the same.
    const compared =
      typeof wanted === "string" || this.comparisons(stage).includes(wanted) ? wanted : "below";
    const before = compared === "" ? null : compared === "below" ? stage - 1 : compared;
    const pair = this.data.pairs.find((other) => other.stage === stage && other.before === before);
    const choice: Choice = { stage, before, compared };
    if (beside && pair) {
      let panes = this.panesOf(pair, opened);
      for (const side of [false, true]) panes = panes.revealChanged(panes.pane(side).scene.marked, side);
      await this.draw(this.filter.uncovered(panes), choice);
    } else {
      const graph = this.graphOf(stage, before);
      await this.draw(this.filter.uncovered(this.panesOf(graph, [...opened, ...graph.opened])), choice);
    }
    if (this.selection && !this.panes.holds(this.selection)) this.selection = null;
    this.set("details", this.described());
  }

  /** Selects a node, at a stage that has it if what is shown has not. */
  private async showNode(name: string, stage: number): Promise<void> {
    const isShown = [false, true].some((before) => this.panes.holds({ kind: "node", name, before }));
    if (!isShown) {
      const { compared, beside } = possible(
        { compared: this.choice.compared, beside: this.panes.before !== null },
        stage,
      );
      await this.showStage(stage, compared, beside);
    }
    await this.selectNode(this.panes.find(name, false), true);
  }

  private stages(): Stages {
    const { stage, compared, before } = this.choice;
    return {
      names: this.data.stages,
      shown: stage,
      compared,
      before,
      beside: this.panes.before !== null,
      comparisons: this.comparisons(stage),
    };
  }

  private comparisons(stage: number): number[] {
    return this.data.pairs.filter((pair) => pair.stage === stage).map((pair) => pair.before);
  }

  private showOverlay(): void {
    const { shown, before } = this.panes;
    const offered = this.graphOf(shown.scene.graph.stage, null).overlays.map(({ name, title }) => ({
      name,
      title,
    }));
    const overlay = this.overlayOn(shown);
    this.set("overlays", {
      offered,
      overlay,
      before: overlay && before && this.overlayOn(before),
      paints: this.data.paints,
    });
  }

  private overlayOn({ scene, view }: Pane): Overlay | null {
    const { overlays, nodes } = this.graphOf(scene.graph.stage, null);
    const chosen = overlays.find(({ name }) => name === this.overlay);
    if (!chosen) return null;
    const { combine, numeric } = chosen;
    const valueOf = new Map(
      nodes.map((place, i) => [this.data.nodes[place]!.name!, chosen.values[i] ?? null]),
    );
    const { leaves } = scene.hierarchy;
    const values: Record<string, Cell> = {};
    for (const item of [...view.clusters, ...view.boxes]) {
      const drawn = item instanceof Group ? leaves.slice(item.start, item.stop) : [item];
      const value = combined(
        drawn.flatMap((leaf) => leaf.names.map((name) => valueOf.get(name) ?? null)),
        combine,
        numeric,
      );
      if (value !== null) values[item.id] = value;
    }
    return { ...chosen, values, total: combined(chosen.values, combine, numeric) };
  }

  private async lightUp(query: string): Promise<void> {
    const before = this.filter;
    this.filter = new NodeFilter(query, before);
    try {
      await this.redraw(this.filter.uncovered(this.panes));
    } catch (error) {
      this.filter = before;
      throw error;
    }
    const found = this.filter.first(this.panes);
    // Who has selected something is looking at it.
    if (found) this.focus(found.names, found.before, this.selection !== null);
  }

  private async selectNode(selection: Selection, show: boolean): Promise<void> {
    if (show && !this.panes.isVisible(selection)) await this.draw(this.panes.uncover(selection));
    this.select(selection);
    if (show) this.focus([selection.name], selection.before);
  }

  private async revealPass(signature: string): Promise<void> {
    const names = [...this.panes.scene.nodes]
      .filter(([, details]) => details.marks.includes(signature))
      .map(([name]) => name);
    await this.draw(this.panes.revealChanged(names, false));
    this.focus(names);
  }

  private select(selection: Selection | null): void {
    if (selection && !this.panes.holds(selection))
      throw new Error(`This stage has no ${selection.kind} named ${selection.name.slice(0, 200)}.`);
    this.selection = selection;
    this.set("details", this.described());
  }

  private focus(names: string[], before = false, gently = false): void {
    const { view } = this.panes.pane(before);
    const boxes = new Set(names.flatMap((name) => view.boxOf(name) ?? []));
    this.tell({ type: "focus", boxes: [...boxes].slice(0, 500), gently, before });
  }

  private async redraw(panes: Panes): Promise<void> {
    await this.draw(panes);
    this.set("details", this.described());
  }

  /** Shows other graphs, or other groups of them opened; if that fails, everything stays as it was. */
  private async draw(panes: Panes, choice = this.choice): Promise<void> {
    const matches = this.matches(panes.shown.view);
    const isCompared = choice.before !== null;
    const picture = await this.drawn(panes.shown, isCompared, matches);
    const before = panes.before && (await this.drawn(panes.before, isCompared, {}));
    this.panes = panes;
    if (choice !== this.choice) {
      this.choice = choice;
      this.set("stages", this.stages());
    }
    this.set("picture", picture);
    this.set("before", before ? { picture: before } : {});
    this.set("found", this.filter.state(panes));
    this.showOverlay();
  }

  private async drawn(
    { scene, view }: Pane,
    compared: boolean,
    matches: Picture["matches"],
  ): Promise<Picture> {
    const { looks, metrics } = this.data;
    const boxes = placeBoxes(view, looks, metrics);
    const edges = new Map(
      view.edges.map((edge) => [
        `edge-${edge.source.id}-${edge.target.id}`,
        this.edge(edge.source, edge.target, edge.leaves),
      ]),
    );
    const drawn = writeSvg(await this.layouts.layOut(outline(view, boxes)), boxes, edges, metrics);
    const infos: [string, Box][] = [...boxes.values()].flatMap(
      ({ id, box, chips }) =>
        [[id, box], ...chips.map((chip): [string, Box] => [chip.id, chip.box])] as [string, Box][],
    );
    return {
      ...drawn,
      boxes: Object.fromEntries(infos),
      edges: Object.fromEntries(edges),
      signatures: scene.signatures,
      compared,
      matches,
    };
  }

  /** What is on the screen, two stages from left to right. */
  private dot(): string {
    const { looks, metrics, stages, paints } = this.data;
    const { overlay, before } = this.state.overlays;
    const pictures = [this.state.picture, this.state.before.picture];
    const painted = [overlay, before].flatMap((own, i): [Overlay, Picture][] =>
      own ? [[own, pictures[i]!]] : [],
    );
    const colours = paintings(painted, paints);
    const side = ({ view }: Pane, i: number): Side => {
      const stage = i ? (this.choice.before ?? 0) : this.choice.stage;
      return {
        name: titleOfStage(stages, stage),
        view,
        boxes: placeBoxes(view, looks, metrics),
        painting: colours[i] ?? null,
      };
    };
    const [shown, beside] = this.panes.all.map(side) as [Side, Side?];
    return beside ? sideBySide([beside, shown], metrics.edge) : toDot(shown, metrics.edge);
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

  private graphOf(stage: number, before: number | null): GraphData {
    const graph = this.data.graphs.find((other) => other.stage === stage && other.before === before);
    if (!graph)
      throw new Error(
        before === null
          ? `There is no stage ${stage}.`
          : `This report does not compare stage ${stage} with ${before}.`,
      );
    return graph;
  }

  private panesOf(what: GraphData | PairData, opened: Iterable<string>): Panes {
    let known = this.known.get(what);
    if (!known)
      this.known.set(
        what,
        (known = "looks" in what ? this.pairOf(what) : { scene: new Scene(this.data, what), beside: null }),
      );
    return new Panes(this.data.metrics, known.scene, known.beside, new Set(opened));
  }

  private pairOf({
    stage,
    before,
    signatures,
    looks,
    counterparts,
  }: PairData): Pick<Panes, "scene" | "beside"> {
    const scene = new Scene(this.data, this.graphOf(stage, null), signatures, looks[0]);
    const other = new Scene(this.data, this.graphOf(before, null), signatures, looks[1]);
    return { scene, beside: { scene: other, counterparts: new Counterparts(other, scene, counterparts) } };
  }

  private described(): Details {
    const { panes, selection } = this;
    if (!selection)
      return this.complete(this.data.groups[panes.scene.graph.details]!, panes.scene, null, null);
    const { scene } = panes.pane(selection.before);
    const sides = { before: selection.before, counterparts: panes.counterparts(selection) };
    if (selection.kind === "group") {
      const group = scene.hierarchy.groups.get(selection.name)!;
      return {
        ...this.complete(scene.detailsOf(group), scene, group.parent, panes.boxOf(selection)),
        ...sides,
      };
    }
    const { parent } = scene.hierarchy.leafOf.get(selection.name)!;
    return {
      ...this.complete(scene.nodes.get(selection.name)!, scene, parent, panes.boxOf(selection)),
      ...sides,
    };
  }

  /** Adds to details what is known of the nodes that they name. */
  private complete(bare: BareDetails, scene: Scene, around: Group | null, box: string | null): Details {
    const crumbs: Details["crumbs"] = [];
    for (let group = around; group?.parent; group = group.parent)
      crumbs.unshift({ label: this.data.looks[group.opened]!.label.slice(0, 80), path: group.path });
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
      ...(frames ? { frames: frames.map((number) => this.data.frames[number]!) } : {}),
    };
  }

  private tell(message: FromKernel): void {
    this.emit("msg:custom", message);
  }

  private emit(event: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? [])
      (listener as (...values: unknown[]) => void)(...values);
  }
}
