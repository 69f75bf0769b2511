/** What answers the inspector where there is no kernel: the graphs of a report, drawn in the page itself. */

import type { Comparison, Overlay, Picture, Stages, State, ToKernel } from "../base/protocol";
import { paintings } from "../graph/saved_picture";
import { possible, titleOfStage } from "../panels/stage_bar";
import type { SessionData } from "./data";
import { describe } from "./describe";
import { placeBoxes } from "./drawing/boxes";
import { sideBySide, toDot, type Side } from "./drawing/dot";
import type { Layouts } from "./drawing/layout";
import { matchesIn, pictureOf } from "./drawing/picture";
import { Graphs } from "./graphs";
import { overlayOn } from "./overlays";
import { PageModel } from "./page_model";
import type { Pane, Panes, Selection } from "./panes";
import { NodeFilter } from "./search/node_filter";

/** What is being done, for errors. */
const DOING: Partial<Record<ToKernel["type"], string>> = {
  open: "Opening the group",
  close: "Closing the group",
  overview: "Closing the groups",
  "select-node": "Selecting the node",
  "select-group": "Selecting the group",
  search: "Searching",
  filter: "Filtering the graph",
  "export-dot": "Exporting DOT",
  "show-stage": "Showing the stage",
  "show-node": "Showing the node",
  "show-overlay": "Showing the overlay",
};

/** Which stages are shown. */
interface Choice {
  stage: number;
  before: number | null;
  compared: Comparison;
}

export class LocalKernel extends PageModel {
  protected readonly state: State;
  private readonly graphs: Graphs;
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
    super();
    this.graphs = new Graphs(data);
    const last = this.graphs.graphOf(data.stages.length - 1, null);
    this.choice = { stage: last.stage, before: null, compared: "" };
    this.panes = this.graphs.panesOf(last, last.opened);
    this.state = {
      picture: {} as Picture,
      before: {},
      passes: data.passes,
      tables: data.tables,
      measured: [],
      status: { busy: null, error: null },
      details: describe(data, this.panes, null),
      stages: this.stages(),
      overlays: { offered: [], overlay: null, paints: data.paints },
      found: {},
      height: 0,
    };
  }

  /** Draws the first picture; the inspector may be shown before. */
  start(): Promise<void> {
    this.showOverlay();
    return this.attempt("Drawing the graph", () => this.draw(this.panes));
  }

  send(message: ToKernel): void {
    // One after another, as a kernel would: each may need the picture that the one before it makes.
    this.queue = this.queue
      .then(() => this.attempt(DOING[message.type] ?? "The request", () => this.answer(message)))
      .then(() => this.tell({ type: "done" }));
  }

  private async attempt(doing: string, action: () => Promise<void> | void): Promise<void> {
    try {
      await action();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.set("status", {
        busy: null,
        error: { number: (this.errors += 1), title: `${doing} failed`, text },
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
    // A report of many stages does not compare any two: the next one may not be compared with the same.
    const compared =
      typeof wanted === "string" || this.graphs.comparisons(stage).includes(wanted) ? wanted : "below";
    const before = compared === "" ? null : compared === "below" ? stage - 1 : compared;
    const pair = this.graphs.pair(stage, before);
    const choice: Choice = { stage, before, compared };
    if (beside && pair) {
      let panes = this.graphs.panesOf(pair, opened);
      for (const side of [false, true]) panes = panes.revealChanged(panes.pane(side).scene.marked, side);
      await this.draw(this.filter.uncovered(panes), choice);
    } else {
      const graph = this.graphs.graphOf(stage, before);
      await this.draw(
        this.filter.uncovered(this.graphs.panesOf(graph, [...opened, ...graph.opened])),
        choice,
      );
    }
    if (this.selection && !this.panes.holds(this.selection)) this.selection = null;
    this.set("details", describe(this.data, this.panes, this.selection));
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
      comparisons: this.graphs.comparisons(stage),
    };
  }

  private showOverlay(): void {
    const { shown, before } = this.panes;
    const offered = this.graphs.graphOf(shown.scene.graph.stage, null).overlays.map(({ name, title }) => ({
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

  private overlayOn(pane: Pane): Overlay | null {
    return overlayOn(this.data, this.graphs.graphOf(pane.scene.graph.stage, null), pane, this.overlay);
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
    this.set("details", describe(this.data, this.panes, this.selection));
  }

  private focus(names: string[], before = false, gently = false): void {
    const { view } = this.panes.pane(before);
    const boxes = new Set(names.flatMap((name) => view.boxOf(name) ?? []));
    this.tell({ type: "focus", boxes: [...boxes].slice(0, 500), gently, before });
  }

  private async redraw(panes: Panes): Promise<void> {
    await this.draw(panes);
    this.set("details", describe(this.data, this.panes, this.selection));
  }

  /** Shows other graphs, or other groups of them opened; if that fails, everything stays as it was. */
  private async draw(panes: Panes, choice = this.choice): Promise<void> {
    const matches = matchesIn(this.data, panes.shown.view);
    const isCompared = choice.before !== null;
    const picture = await pictureOf(this.data, this.layouts, panes.shown, isCompared, matches);
    const before = panes.before && (await pictureOf(this.data, this.layouts, panes.before, isCompared, {}));
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
}
