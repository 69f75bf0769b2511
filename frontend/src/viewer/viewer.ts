/** The viewer: decides what of the graphs is shown, and draws it, in the page; whoever has the model is asked for the rest. */

import {
  PANELS_AT_FIRST,
  type Arrangement,
  type Code,
  type Comparison,
  type Details,
  type Overlay,
  type Pass,
  type Picture,
  type Stages,
  type State,
  type ToSession,
  type ToViewer,
} from "../base/protocol";
import { offersIn } from "../base/read_message";
import { NO_VALUES } from "../base/values";
import { paintings } from "../graph/saved_picture";
import { possible, titleOfStage } from "../panels/stage_bar";
import { arrangementIn, PLAIN, withBookkeeping } from "./graphs/arrangement";
import { codeOf, NO_CODE } from "./stages/codes";
import type { Data } from "./graphs/data";
import { describe } from "./details/describe";
import { placeBoxes } from "./drawing/boxes";
import { sideBySide, toDot, type Side } from "./drawing/dot";
import type { Layouts } from "./drawing/layout";
import { matchesIn, pictureOf } from "./drawing/picture";
import { Extras } from "./details/extras";
import { Graphs } from "./graphs/graphs";
import { ShownError, type Kernel, type KernelState, type StagesKnown, type ViewState } from "./kernels/kernel";
import { NodeValues } from "./details/node_values";
import { OverlayChoice } from "./overlays/overlay_choice";
import { PageModel } from "./page_model";
import { CHANGES, type Pane, type Panes, type Selection } from "./graphs/panes";
import { NodeFilter } from "./search/node_filter";

/** What is being done, for errors. */
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
  "export-dot": "Exporting DOT",
  "export-pdf": "Exporting a PDF",
  "show-stage": "Showing the stage",
  "show-node": "Showing the node",
  "show-overlay": "Showing the overlay",
  "show-code": "Showing the code",
  "show-values": "Computing the values",
  "show-part": "Reading the values",
};

/** More are not shown because somebody opens all groups at once. */
const MOST_BOXES = 400;

/** Which stages are shown. */
interface Choice {
  stage: number;
  before: number | null;
  compared: Comparison;
  beside: boolean;
  preview: StagesKnown["preview"];
  /** Numbers of the graphs of these stages, each alone, of which overlays are. */
  alone: number[];
}

const NOTHING: Choice = { stage: 0, before: null, compared: "", beside: false, preview: null, alone: [] };

export class Viewer extends PageModel {
  protected readonly state: State;
  private data: Data;
  private graphs: Graphs;
  private choice = NOTHING;
  /** Null until the first graph has arrived. */
  private panes: Panes | null = null;
  private filter = new NodeFilter();
  private readonly overlay: OverlayChoice;
  private selection: Selection | null = null;
  private readonly extras: Extras;
  private readonly values: NodeValues;
  /** The passes that are on, by their keys. */
  private applied = new Map<string, string>();
  private version = -1;
  private queue: Promise<void> = Promise.resolve();
  private isFetchingCandidates = false;
  private errors = 0;
  /** How often a stage was asked for: only the last that was is shown. */
  private looks = 0;
  /** In how many places the code is looked at: a widget can be shown in several. */
  private codeReaders = 0;

  constructor(
    private readonly kernel: Kernel,
    private readonly layouts: Layouts,
  ) {
    super();
    const { passes, tables, measured, status, height, panels } = kernel.state;
    this.data = kernel.data;
    this.graphs = this.freshGraphs();
    this.overlay = new OverlayChoice(kernel);
    this.extras = new Extras(kernel);
    this.values = new NodeValues(kernel, (shown) => this.set("values", shown));
    this.state = {
      ...{ passes, tables, measured, status, height },
      panels: { ...PANELS_AT_FIRST, ...panels },
      picture: {} as Picture,
      before: {},
      details: {} as Details,
      model: {} as Details,
      stages: {
        names: [],
        changes: [],
        shown: 0,
        compared: "",
        before: null,
        beside: false,
        comparisons: [],
      },
      overlays: { offered: [], overlay: null, paints: {} as State["overlays"]["paints"] },
      found: {},
      arrangement: PLAIN,
      remarks: { about: "", list: [] },
      code: NO_CODE,
      selected: { shown: [], before: [] },
      values: NO_VALUES,
    };
    kernel.follow((name, view) => this.follow(name, view));
    this.enqueue("Drawing the graph", () => this.start());
  }

  override set<K extends keyof State>(name: K, value: State[K]): void {
    super.set(name, value);
    if (name === "height" || name === "panels") this.kernel.keep(name, value as never);
  }

  send(message: ToViewer): void {
    const done = (): void => this.tell({ type: "done" });
    switch (message.type) {
      case "list-offers":
        return void this.kernel
          .ask({ type: message.type })
          .then(({ value }) => this.tell({ ...message, type: "offers", offers: offersIn(value) }), ignore)
          .then(done);
      case "export-pdf":
        return void this.kernel
          .ask({ type: "pdf" })
          .then(({ buffers }) => this.tell({ ...message, type: "pdf" }, buffers), ignore)
          .then(done);
      case "show-stage":
        return void this.attempt(DOING[message.type]!, () =>
          this.look(message.stage, message.compared, message.beside),
        ).then(done);
      case "show-node":
        return void this.attempt(DOING[message.type]!, () => this.showNode(message.name, message.stage)).then(
          done,
        );
      case "show-overlay":
        return void this.attempt(DOING[message.type]!, () => this.chooseOverlay(message.name)).then(done);
      case "show-code":
        this.codeReaders += message.on ? 1 : -1;
        return void this.attempt(DOING[message.type]!, () => this.showCode()).then(done);
      case "show-values":
        return void this.attempt(DOING[message.type]!, () => this.values.look()).then(done);
      case "show-part": {
        const { type, tensor, ...axes } = message;
        return void this.attempt(DOING[type]!, () => this.values.choose(tensor, axes)).then(done);
      }
      default:
        if (isForSession(message)) return void this.kernel.ask(message).then(ignore, ignore).then(done);
        void this.enqueue(DOING[message.type] ?? "The request", () => this.answer(message)).then(done);
    }
  }

  /** Shows what a kernel says; what needs a graph waits until it has arrived. */
  private follow(name: keyof KernelState, changes?: Partial<ViewState>): void {
    const { state } = this.kernel;
    if (name === "stages") void this.attempt("Showing the change", () => this.followStages());
    else if (name === "view") {
      if (changes) void this.attempt("Showing the change", () => this.followView(changes));
    } else if (name === "overlays") this.showOverlay();
    else this.set(name, state[name] as never);
  }

  private async start(): Promise<void> {
    // A page may be restored without a kernel, with nothing in it.
    if (this.kernel.state.stages.version === undefined) return;
    // The first picture keeps a view of its own.
    const { view } = this.kernel.state;
    await this.followStages(true);
    this.set("remarks", this.data.remarks);
    void this.attempt("Showing the view", () => this.followView(view));
  }

  /** Does one thing after another: each may need the picture that the one before it makes. */
  private enqueue(doing: string, action: () => Promise<void> | void): Promise<void> {
    this.queue = this.queue.then(() => this.attempt(doing, action));
    return this.queue;
  }

  private async attempt(doing: string, action: () => Promise<void> | void): Promise<void> {
    try {
      await action();
    } catch (error) {
      if (error instanceof ShownError) return;
      const text = error instanceof Error ? error.message : String(error);
      this.set("status", {
        busy: this.state.status.busy,
        error: { number: (this.errors -= 1), title: `${doing} failed`, text },
      });
    }
  }

  private async answer(message: Exclude<ToViewer, ToSession>): Promise<void> {
    const panes = this.panes;
    if (!panes) throw new Error("The graph has not arrived yet.");
    switch (message.type) {
      case "open":
        return this.open(message.path);
      case "close":
        return this.redraw(panes.close(message.path));
      case "overview":
        return this.redraw(panes.showing(byPerson(panes.scene.graph.overview)));
      case "open-level":
        return this.redraw(panes.openLevel(MOST_BOXES));
      case "close-level":
        return this.redraw(panes.closeLevel());
      case "arrange":
        return this.arrange(arrangementIn(message.arrangement, this.state.arrangement));
      case "select-node":
        return this.selectNode(panes.find(message.name, message.before), message.show);
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
          ...panes.scene.search.find(message.query),
        });
      case "filter":
        return this.lightUp(message.query);
      case "export-dot":
        return this.tell({ type: "dot", request: message.request, text: this.dot(panes) });
    }
  }

  // The stages.

  /** Shows the session as it is now: its last stage, or what is to become of it. */
  private async followStages(isQueued = false): Promise<void> {
    await this.kernel.ready();
    const { stages, view } = this.kernel.state;
    const isOther = stages.version !== this.version;
    if (isOther) {
      this.version = stages.version;
      this.extras.clear();
      this.values.clear();
    }
    const last = stages.names.length - 1;
    const isNew = isOther || this.choice.preview?.graph !== stages.preview?.graph;
    if (!isNew) return this.set("stages", this.stages());
    const { stage, compared, beside } = view;
    const shown = stage === null ? last : Math.min(stage, last);
    const wish = possible({ compared, beside }, shown);
    return this.look(shown, wish.compared, wish.beside, isQueued);
  }

  /** Looks at a stage, alone or compared with another; one that has not arrived is asked for. */
  private async look(stage: number, wanted: Comparison, beside: boolean, isQueued = false): Promise<void> {
    const look = (this.looks += 1);
    const { preview } = this.kernel.state.stages;
    let choice: Choice;
    if (preview) {
      const last = this.kernel.state.stages.names.length - 1;
      choice = { stage: last, before: null, compared: "", beside: false, preview, alone: [] };
    } else {
      const known = this.comparisons(stage);
      // A report of many stages does not compare any two.
      const compared = typeof wanted === "string" || known.includes(wanted) ? wanted : "below";
      const before = compared === "" ? null : compared === "below" ? stage - 1 : compared;
      choice = { stage, before, compared, beside: beside && before !== null, preview: null, alone: [] };
      await this.fetch(choice);
      if (look !== this.looks) return;
    }
    const show = (): Promise<void> => this.show(choice);
    return isQueued ? show() : this.enqueue("Showing the stage", show);
  }

  /** Waits until the graphs of a choice are here. */
  private async fetch(choice: Choice): Promise<void> {
    if (this.placeOf(choice) !== undefined) return;
    const { stage, before, beside } = choice;
    const { version, names } = this.kernel.state.stages;
    if (this.kernel.isFixed || stage < 0 || stage >= names.length)
      throw new Error(
        before === null
          ? `There is no stage ${stage}.`
          : `This report does not compare stage ${stage} with ${before}.`,
      );
    await this.kernel.ask({ type: "graph", version, stage, before, beside });
    await this.kernel.ready();
  }

  /** Returns the number of the graph, or pair, that is chosen; undefined if it has not arrived. */
  private placeOf({ stage, before, beside, preview }: Choice): number | undefined {
    const { alone, merged, pairs } = this.kernel.state.stages;
    if (preview) return preview.graph;
    if (before === null) return alone[stage];
    return (beside ? pairs : merged)[`${stage}/${before}`];
  }

  private async show(choice: Choice): Promise<void> {
    const place = this.placeOf(choice);
    // The session has changed meanwhile, and what it is now is about to be shown.
    if (place === undefined) return;
    if (this.data !== this.kernel.data) {
      this.data = this.kernel.data;
      this.graphs = this.freshGraphs();
    }
    const isPair = choice.beside && !choice.preview && choice.before !== null;
    const { alone } = this.kernel.state.stages;
    const sides = isPair ? [choice.stage, choice.before!] : [choice.stage];
    choice.alone = sides.flatMap((stage) => alone[stage] ?? []);
    const first = this.panes === null;
    const { view } = this.kernel.state;
    const after = isPair ? this.data.pairs[place]!.after : place;
    const opened = this.panes?.opened ?? byPerson(view.opened ?? this.data.graphs[after]!.opened);
    let panes = isPair ? this.graphs.panesOfPair(place, opened) : this.graphs.panesOf(place, opened);
    const switched = this.switched();
    for (const key of switched.off) panes = panes.forget(key);
    panes = panes.forget(CHANGES);
    if (choice.before !== null || choice.preview)
      panes.all.forEach(({ scene }, i) => (panes = panes.revealFor(CHANGES, scene.marked, i > 0)));
    else
      for (const { key, signature } of switched.on)
        panes = panes.revealFor(key, this.changedBy(signature, panes), false);
    this.filter = new NodeFilter(this.filter.query);
    if (this.filter.query) panes = this.filter.uncovered(panes);
    if (first) this.set("arrangement", arrangementIn(view, PLAIN));
    if (this.state.arrangement.bookkeeping) panes = withBookkeeping(panes, true);
    await this.draw(panes, choice);
    this.keepWhatIsThere();
    const changed = choice.preview
      ? panes.scene.marked
      : switched.on.flatMap(({ signature }) => this.changedBy(signature, panes));
    // A report begins at what its last pass that changed anything has done.
    if (first && this.kernel.isFixed) this.focus(this.lastChanged(panes));
    else if (changed.length > 0 && !first) this.focus(changed, false, true);
    this.keepView();
    void this.attempt(DOING["show-code"]!, () => this.showCode());
    void this.attempt("Reading the graph", () => this.fetchRest());
    void this.attempt("Looking for candidates", () => this.fetchCandidates());
  }

  /** Returns which passes were switched on, or do something else now, and which off, since this was asked last. */
  private switched(): { on: Pass[]; off: string[] } {
    const { passes } = this.kernel.state.passes;
    const was = this.applied;
    const now = passes.filter((pass) => pass.on);
    this.applied = new Map(now.map(({ key, signature }) => [key, signature]));
    return {
      on: now.filter(({ key, signature }) => was.get(key) !== signature),
      off: [...was.keys()].filter((key) => !this.applied.has(key)),
    };
  }

  /** Asks for what is left of a large graph, part by part. */
  private async fetchRest(): Promise<void> {
    const { panes } = this;
    if (!panes || panes.all.every(({ scene }) => scene.hierarchy.isComplete) || this.kernel.isFixed) return;
    const { number } = panes.all.find(({ scene }) => !scene.hierarchy.isComplete)!.scene;
    while (!(await this.kernel.ask({ type: "rest", graph: number })).value) await this.kernel.ready();
    await this.kernel.ready();
    await this.enqueue("Drawing the graph", () => this.renew());
  }

  /** Lets the kernel ask pass after pass for candidates, so that it hears of clicks between them. */
  private async fetchCandidates(): Promise<void> {
    const areMissing = (): boolean => this.kernel.state.passes.passes.some(({ isLooking }) => isLooking);
    if (this.isFetchingCandidates || this.kernel.isFixed || !areMissing()) return;
    this.isFetchingCandidates = true;
    try {
      while (areMissing()) {
        const { value: areAll } = await this.kernel.ask({ type: "candidates" });
        await this.kernel.ready();
        await this.enqueue("Showing the candidates", () => this.showMatches());
        if (areAll) break;
      }
    } catch {
      // A saved notebook may be opened without a kernel, before any page has asked.
      return this.giveUpCandidates();
    } finally {
      this.isFetchingCandidates = false;
    }
    // What passes say of a node is known only now.
    this.extras.clear();
    this.showDetails();
  }

  private giveUpCandidates(): void {
    const { passes } = this.kernel.state;
    const note = "Its candidates are unknown: the kernel did not answer.";
    const known = (pass: Pass): Pass => (pass.isLooking ? { ...pass, isLooking: false, note } : pass);
    this.set("passes", { ...passes, passes: passes.passes.map(known) });
  }

  private showMatches(): void {
    if (!this.panes || this.data !== this.kernel.data) return;
    this.set("picture", { ...this.state.picture, matches: matchesIn(this.data, this.panes.shown.view) });
  }

  private async renew(): Promise<void> {
    if (!this.graphs.renew() || !this.panes) return;
    const place = this.placeOf(this.choice);
    if (place === undefined) return;
    const { opened } = this.panes;
    const isPair = this.panes.before !== null;
    await this.redraw(isPair ? this.graphs.panesOfPair(place, opened) : this.graphs.panesOf(place, opened));
  }

  /** Shows the code of the stages that are shown, if somebody looks at it; what has not arrived is asked for. */
  private async showCode(): Promise<void> {
    const { choice, kernel } = this;
    if (this.codeReaders === 0 || !this.panes) return;
    const known = (): Code | null => codeOf(this.kernel.data, this.kernel.state.stages, choice);
    let code = known();
    if (!code && !kernel.isFixed) {
      this.set("code", { ...NO_CODE, state: "pending" });
      const { stage, before } = choice;
      try {
        await kernel.ask({ type: "code", version: kernel.state.stages.version, stage, before });
        await kernel.ready();
      } finally {
        code = known();
        if (!code && choice === this.choice)
          this.set("code", { ...NO_CODE, state: "failed", text: "The code of this stage has not arrived." });
      }
    }
    // Another stage is shown by now, or the session has changed and is about to be.
    if (choice === this.choice && code) this.set("code", code);
  }

  private freshGraphs(): Graphs {
    return new Graphs(this.data, () => this.kernel.state.passes.passes);
  }

  private comparisons(stage: number): number[] {
    const { pairs } = this.kernel.state.stages;
    if (!this.kernel.isFixed) return Array.from({ length: stage }, (_, i) => i);
    return Object.keys(pairs).flatMap((key) => {
      const [after, before] = key.split("/").map(Number);
      return after === stage ? [before!] : [];
    });
  }

  private stages(): Stages {
    const { stage, compared, before, beside, preview } = this.choice;
    return {
      names: this.kernel.state.stages.names,
      changes: this.kernel.state.stages.changes,
      shown: stage,
      compared,
      before,
      beside,
      comparisons: this.comparisons(stage),
      preview,
    };
  }

  // What is opened, found and coloured.

  private async open(path: string): Promise<void> {
    const group = this.panes!.all.map(({ scene }) => scene.hierarchy.groups.get(path)).find(Boolean);
    if (group?.isMissing) throw new Error("This group has not arrived yet: the kernel is still sending it.");
    return this.redraw(this.panes!.open(path));
  }

  private async arrange(wanted: Arrangement): Promise<void> {
    const was = this.state.arrangement;
    const isOther = wanted.bookkeeping !== was.bookkeeping;
    const panes = isOther ? withBookkeeping(this.panes!, wanted.bookkeeping) : this.panes!;
    this.set("arrangement", wanted);
    try {
      await this.redraw(panes);
    } catch (error) {
      this.set("arrangement", was);
      throw error;
    }
  }

  private async lightUp(query: string): Promise<void> {
    const before = this.filter;
    this.filter = new NodeFilter(query);
    try {
      await this.redraw(this.filter.uncovered(this.panes!));
    } catch (error) {
      this.filter = before;
      throw error;
    }
    this.keepView();
    const found = this.filter.first(this.panes!);
    // Who has selected something is looking at it.
    if (found) this.focus(found.names, found.before, this.selection !== null);
  }

  private changedBy(signature: string, panes: Panes): string[] {
    return panes.scene.hierarchy.nodes
      .filter(({ marks }) => marks.includes(signature))
      .map(({ name }) => name);
  }

  /** Returns the nodes of the highest pass that has some in a graph; none if no pass has. */
  private lastChanged(panes: Panes): string[] {
    const names = this.kernel.state.passes.passes
      .filter(({ on }) => on)
      .map(({ signature }) => this.changedBy(signature, panes));
    return names.findLast(({ length }) => length > 0) ?? [];
  }

  private async revealPass(signature: string): Promise<void> {
    const names = this.changedBy(signature, this.panes!);
    const key = this.state.passes.passes.find((pass) => pass.signature === signature)?.key ?? "";
    await this.draw(this.panes!.revealFor(key, names, false));
    this.focus(names);
  }

  private async chooseOverlay(name: string): Promise<void> {
    const before = this.overlay.name;
    this.overlay.name = name;
    try {
      await this.overlay.measure(this.choice.alone);
    } catch (error) {
      this.overlay.name = before;
      throw error;
    } finally {
      this.showOverlay();
    }
    this.keepView();
  }

  /** Keeps the colours true after the graph has changed; an overlay that cannot be measured goes. */
  private async measureAnew(): Promise<void> {
    const { overlay, choice } = this;
    const { name } = overlay;
    if (!choice.alone.some((graph) => overlay.isMissing(graph))) return;
    try {
      await overlay.measure(choice.alone);
    } catch (error) {
      if (overlay.name === name) overlay.name = "";
      throw error;
    } finally {
      this.showOverlay();
    }
  }

  private showOverlay(): void {
    const { panes, data, graphs } = this;
    if (panes) this.set("overlays", this.overlay.state(data, graphs, panes, this.choice.alone));
  }

  // What is selected.

  private async selectNode(selection: Selection, show: boolean): Promise<void> {
    if (show && !this.panes!.isVisible(selection)) await this.draw(this.panes!.uncover(selection));
    this.select(selection);
    if (show) this.focus([selection.name], selection.before);
  }

  /** Selects a node, at a stage that has it if what is shown has not. */
  private async showNode(name: string, stage: number): Promise<void> {
    const isShown = [false, true].some((before) => this.panes?.holds({ kind: "node", name, before }));
    if (!isShown) {
      const { compared, beside } = possible(this.choice, stage);
      await this.look(stage, compared, beside);
    }
    await this.enqueue(DOING["select-node"]!, () => this.selectNode(this.panes!.find(name, false), true));
  }

  private select(selection: Selection | null): void {
    if (selection && !this.panes!.holds(selection))
      throw new Error(`This stage has no ${selection.kind} named ${selection.name.slice(0, 200)}.`);
    this.selection = selection;
    this.showDetails();
    this.keepView();
  }

  private keepWhatIsThere(): void {
    if (this.selection && !this.panes!.holds(this.selection)) this.selection = null;
    this.showDetails();
  }

  /** Shows what is known of the selection here, and once the kernel has answered what it says. */
  private showDetails(): void {
    const { panes, selection, data } = this;
    if (!panes) return;
    this.set("selected", selection ? panes.nodesOf(selection) : { shown: [], before: [] });
    this.selectValues();
    if (!selection) {
      if (this.state.details !== this.state.model) this.set("details", this.state.model);
      return;
    }
    const { scene } = panes.pane(selection.before);
    const known = this.extras.of(data, scene, selection);
    this.set("details", describe(data, panes, selection, known, isComparison(this.choice)));
    if (!known)
      void this.extras.ask(scene, selection).then((isKnown) => isKnown && this.showDetails(), ignore);
  }

  private selectValues(): void {
    const { panes, selection } = this;
    if (selection?.kind !== "node") return this.values.select(null);
    const { number } = panes!.pane(selection.before).scene;
    this.values.select({
      graph: number,
      name: selection.name,
      before: selection.before ? null : this.choice.before,
    });
  }

  private focus(names: string[], before = false, gently = false): void {
    const { view } = this.panes!.pane(before);
    const boxes = new Set(names.flatMap((name) => view.boxOf(name) ?? []));
    this.tell({ type: "focus", boxes: [...boxes].slice(0, 500), gently, before });
  }

  // Drawing.

  private async redraw(panes: Panes): Promise<void> {
    await this.draw(panes);
    this.showDetails();
    this.keepView();
  }

  /** Shows other graphs, or other groups of them opened; if that fails, everything stays as it was. */
  private async draw(panes: Panes, choice = this.choice): Promise<void> {
    const how = {
      compared: isComparison(choice),
      preview: choice.preview !== null,
      arrangement: this.state.arrangement,
    };
    const matches = matchesIn(this.data, panes.shown.view);
    const picture = await pictureOf(this.data, this.layouts, panes.shown, { ...how, matches });
    const before =
      panes.before && (await pictureOf(this.data, this.layouts, panes.before, { ...how, matches: {} }));
    this.panes = panes;
    if (choice !== this.choice) {
      this.choice = choice;
      this.set("stages", this.stages());
      this.set("model", describe(this.data, panes, null));
    }
    this.set("picture", picture);
    this.set("before", before ? { picture: before } : {});
    this.set("found", this.filter.state(panes));
    this.showOverlay();
    void this.attempt("Measuring the overlay", () => this.measureAnew());
  }

  /** What is on the screen, two stages from left to right. */
  private dot(panes: Panes): string {
    const { looks, metrics, paints } = this.data;
    const { names } = this.kernel.state.stages;
    const { overlay, before } = this.state.overlays;
    const pictures = [this.state.picture, this.state.before.picture];
    const painted = [overlay, before].flatMap((own, i): [Overlay, Picture][] =>
      own ? [[own, pictures[i]!]] : [],
    );
    const colours = paintings(painted, paints);
    const side = ({ view }: Pane, i: number): Side => {
      const stage = i ? (this.choice.before ?? 0) : this.choice.stage;
      return {
        name: titleOfStage(names, stage),
        view,
        boxes: placeBoxes(view, looks, metrics),
        painting: colours[i] ?? null,
      };
    };
    const [shown, beside] = panes.all.map(side) as [Side, Side?];
    const { arrangement } = this.state;
    return beside
      ? sideBySide([beside, shown], metrics.edge, arrangement)
      : toDot(shown, metrics.edge, arrangement);
  }

  // The view as a kernel knows it.

  /** Lets the kernel know how the graph is looked at, so that scripts can ask, and pages opened later show it. */
  private keepView(): void {
    const { stage, compared, beside, preview } = this.choice;
    if (preview || !this.panes) return;
    const last = this.kernel.state.stages.names.length - 1;
    this.kernel.keep("view", {
      stage: stage === last ? null : stage,
      compared,
      beside,
      opened: [...this.panes.opened.keys()],
      query: this.filter.query,
      overlay: this.overlay.name,
      selected: this.selection,
      ...this.state.arrangement,
    });
  }

  /** Looks at the graph as a script wants it; what it has not changed stays as it is. */
  private async followView(wish: Partial<ViewState>): Promise<void> {
    await this.kernel.ready();
    const { choice } = this;
    const view = { ...choice, ...wish };
    const stage = view.stage ?? this.kernel.state.stages.names.length - 1;
    const isOther =
      stage !== choice.stage || view.compared !== choice.compared || view.beside !== choice.beside;
    if (!choice.preview && isOther) await this.look(stage, view.compared, view.beside);
    await this.enqueue("Showing the view", () => this.takeOver(wish));
  }

  private async takeOver(wish: Partial<ViewState>): Promise<void> {
    const { opened, query, overlay, selected } = wish;
    if (!this.panes) return;
    const wanted = arrangementIn(wish, this.state.arrangement);
    if (JSON.stringify(wanted) !== JSON.stringify(this.state.arrangement)) await this.arrange(wanted);
    const { panes } = this;
    const is = new Set(opened ?? panes.opened.keys());
    const isSame = is.size === panes.opened.size && [...is].every((path) => panes.opened.has(path));
    if (!isSame) await this.redraw(panes.showingPaths([...is]));
    if (query !== undefined && query !== this.filter.query) await this.lightUp(query);
    if (overlay !== undefined && overlay !== this.overlay.name) await this.chooseOverlay(overlay);
    const { selection } = this;
    if (selected === undefined || JSON.stringify(selected) === JSON.stringify(selection)) return;
    if (selected === null) return this.select(null);
    if (!this.panes!.holds(selected)) {
      // Of a widget the session has changed since; a link is of another report.
      if (this.kernel.isFixed)
        throw new Error(`This stage has no ${selected.kind} named ${selected.name.slice(0, 200)}.`);
      return;
    }
    if (selected.kind === "node") return this.selectNode(selected, true);
    this.select(selected);
  }
}

function isComparison({ before, preview }: Choice): boolean {
  return before !== null || preview !== null;
}

function isForSession(message: ToViewer): message is ToSession {
  switch (message.type) {
    case "toggle":
    case "preview":
    case "exclude":
    case "include":
    case "move":
    case "add":
    case "remove":
    case "undo":
    case "redo":
    case "reset":
    case "refresh":
    case "judge":
    case "end-preview":
    case "measure":
      return true;
    default:
      return false;
  }
}

function byPerson(paths: string[]): Map<string, string> {
  return new Map(paths.map((path) => [path, ""]));
}

function ignore(): void {}
