/** The screen: draws stages, keeps what is open, found, coloured and selected in them, and lets the kernel know. */

import {
  type Details,
  type Focus,
  type Lit,
  type Model,
  NO_CODE,
  NO_STAGES,
  PANELS_AT_FIRST,
  type Picture,
  type State,
  type ToViewer,
  NO_VALUES,
} from "../base/protocol";
import { describe, Extras } from "./details/describe";
import { NodeValues } from "./details/node_values";
import type { Layouts } from "./drawing/layout";
import { LineStyles } from "./drawing/lines";
import { matchesIn, pictureOf } from "./drawing/picture";
import type { Data } from "./graphs/data";
import { Graphs } from "./graphs/graphs";
import { arrangementIn, LIT, type Panes, PLAIN, withBookkeeping } from "./graphs/panes";
import { ShownError, type Kernel } from "./kernels/kernel";
import { OverlayChoice } from "./overlays";
import { NodeFilter } from "./search/node_filter";
import { isComparison, lastStage, NOTHING, stagesShown } from "./stages/stage_choice";
import type { Arrangement, Role, Selected, ViewState } from "../base/wire";
import { changedBy } from "./stages/passes";

/** A box with several nodes is shown as the last of these that one of them is. */
const ROLES: readonly Role[] = ["picked", "passed", "fits", "misfit"];

type Listener = (...values: never[]) => void;

/** The state of an inspector, kept in the page as a widget's model keeps it. */
abstract class PageModel implements Model {
  protected abstract readonly state: State;
  private readonly listeners = new Map<string, Set<Listener>>();

  abstract send(message: ToViewer): Promise<unknown>;

  get<K extends keyof State>(name: K): State[K] {
    return this.state[name];
  }

  set<K extends keyof State>(name: K, value: State[K]): void {
    this.state[name] = value;
    this.emit(`change:${name}`);
  }

  on(event: string, callback: Listener): void {
    if (!this.listeners.has(event)) this.listeners.set(event, new Set());
    this.listeners.get(event)!.add(callback);
  }

  off(event: string, callback: Listener): void {
    this.listeners.get(event)?.delete(callback);
  }

  protected emit(event: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? [])
      (listener as (...values: unknown[]) => void)(...values);
  }
}

export abstract class Screen extends PageModel {
  protected readonly state: State;
  protected data: Data;
  protected graphs: Graphs;
  protected choice = NOTHING;
  /** Null until the first graph has arrived. */
  protected panes: Panes | null = null;
  protected filter = new NodeFilter();
  /** The parts of nodes that are lit up. */
  protected roles: Record<string, Role> = {};
  private readonly overlay: OverlayChoice;
  private selection: Selected | null = null;
  /** What was selected until a stage came that has it not; it is selected again where it is. */
  private lost: Selected | null = null;
  protected readonly extras: Extras;
  protected readonly values: NodeValues;
  private queue: Promise<unknown> = Promise.resolve();
  private errors = 0;

  constructor(
    protected readonly kernel: Kernel,
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
      beside: [],
      details: {} as Details,
      model: {} as Details,
      stages: NO_STAGES,
      overlays: { offered: [], overlay: null, beside: [], paints: {} as State["overlays"]["paints"] },
      found: null,
      lit: { boxes: {} },
      arrangement: PLAIN,
      remarks: { about: "", remarks: [] },
      code: NO_CODE,
      selected: { shown: [], before: [] },
      values: NO_VALUES,
    };
  }

  override set<K extends keyof State>(name: K, value: State[K]): void {
    super.set(name, value);
    if (name === "height" || name === "panels") this.kernel.keep(name, value as never);
  }

  /** Does one thing after another: each may need the picture that the one before it makes. */
  protected enqueue<T>(doing: string, action: () => Promise<T> | T): Promise<T | null> {
    const done = this.queue.then(() => this.attempt(doing, action));
    this.queue = done;
    return done;
  }

  protected async attempt<T>(doing: string, action: () => Promise<T> | T): Promise<T | null> {
    try {
      return await action();
    } catch (error) {
      if (error instanceof ShownError) return null;
      const text = error instanceof Error ? error.message : String(error);
      this.set("status", {
        busy: this.state.status.busy,
        error: { number: (this.errors -= 1), title: `${doing} failed`, text },
      });
      return null;
    }
  }

  // What is opened, found and coloured.

  protected async open(path: string): Promise<void> {
    const group = this.panes!.all.map(({ scene }) => scene.hierarchy.groups.get(path)).find(Boolean);
    if (group?.isMissing) throw new Error("This group has not arrived yet: the kernel is still sending it.");
    return this.redraw(this.panes!.open(path));
  }

  protected async arrange(wanted: Arrangement): Promise<void> {
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

  protected async lightUp(query: string): Promise<void> {
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
    if (found) this.focus(found.names, found.pane, this.selection !== null);
  }

  /** Lights nodes up, each with its part in something; none ends it, and those lit before stay in sight. */
  protected async lightNodes(roles: Record<string, Role>, before: Record<string, Role>): Promise<void> {
    this.roles = roles;
    const lit = this.panes!.forget(LIT).revealFor(LIT, Object.keys(roles), 0);
    const names = Object.keys(Object.keys(roles).length > 0 ? roles : before);
    const { opened } = this.panes!;
    const isSame =
      lit.opened.size === opened.size && [...lit.opened.keys()].every((path) => opened.has(path));
    if (isSame) this.set("lit", this.litIn(this.panes!));
    else await this.redraw(lit);
    if (names.length > 0) this.focus(names, 0, true);
  }

  private litIn(panes: Panes): Lit {
    const boxes: Record<string, Role> = {};
    for (const role of ROLES)
      for (const name of Object.keys(this.roles)) {
        const box = this.roles[name] === role ? panes.shown.view.boxOf(name) : null;
        if (box) boxes[box] = role;
      }
    return { boxes };
  }

  protected async revealPass(signature: string): Promise<void> {
    const names = changedBy(signature, this.panes!);
    const key = this.state.passes.passes.find((pass) => pass.signature === signature)?.key ?? "";
    await this.draw(this.panes!.revealFor(key, names, 0));
    this.focus(names);
  }

  protected async chooseOverlay(name: string): Promise<void> {
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

  protected showOverlay(): void {
    const { panes, data, graphs } = this;
    if (panes) this.set("overlays", this.overlay.state(data, graphs, panes, this.choice.alone));
  }

  // What is selected.

  protected async selectNode(selection: Selected, show: boolean): Promise<void> {
    if (show && !this.panes!.isVisible(selection)) await this.draw(this.panes!.uncover(selection));
    this.select(selection);
    if (show) this.focus([selection.name], selection.pane);
  }

  protected select(selection: Selected | null): void {
    if (selection && !this.panes!.holds(selection))
      throw new Error(`This stage has no ${selection.kind} named ${selection.name.slice(0, 200)}.`);
    this.selection = selection;
    this.lost = null;
    this.showDetails();
    this.keepView();
  }

  protected keepWhatIsThere(): void {
    const wanted = this.selection ?? this.lost;
    this.selection = wanted && this.panes!.holds(wanted) ? wanted : null;
    this.lost = this.selection ? null : wanted;
    this.showDetails();
  }

  /** Shows what is known of the selection here, and once the kernel has answered what it says. */
  protected showDetails(): void {
    const { panes, selection, data } = this;
    if (!panes) return;
    this.set("selected", selection ? panes.nodesOf(selection) : { shown: [], before: [] });
    this.selectValues();
    if (!selection) {
      if (this.state.details !== this.state.model) this.set("details", this.state.model);
      return;
    }
    const { scene } = panes.pane(selection.pane);
    const known = this.extras.of(data, scene, selection);
    this.set("details", describe(data, panes, selection, known, isComparison(this.choice)));
    if (!known)
      void this.extras.ask(scene, selection).then((isKnown) => isKnown && this.showDetails(), ignore);
  }

  private selectValues(): void {
    const { panes, selection } = this;
    if (selection?.kind !== "node") return this.values.select(null);
    const { number } = panes!.pane(selection.pane).scene;
    this.values.select({
      graph: number,
      name: selection.name,
      before: selection.pane ? null : this.choice.before,
    });
  }

  protected focus(names: string[], pane = 0, gently = false): void {
    const { view } = this.panes!.pane(pane);
    const boxes = new Set(names.flatMap((name) => view.boxOf(name) ?? []));
    this.emit("focus", { boxes: [...boxes].slice(0, 500), gently, pane } satisfies Focus);
  }

  // Drawing.

  protected async redraw(panes: Panes): Promise<void> {
    await this.draw(panes);
    this.showDetails();
    this.keepView();
  }

  /** Shows other graphs, or other groups of them opened; if that fails, everything stays as it was. */
  protected async draw(panes: Panes, choice = this.choice): Promise<void> {
    const { arrangement } = this.state;
    const views = panes.all.map(({ view }) => view);
    const how = {
      compared: isComparison(choice),
      preview: choice.preview !== null,
      arrangement,
      lines: new LineStyles(views, arrangement.lines, this.data.paints),
    };
    const matches = matchesIn(this.data, panes.shown.view);
    const picture = await pictureOf(this.data, this.layouts, panes.shown, { ...how, matches });
    const beside: Picture[] = [];
    for (const pane of panes.all.slice(1))
      beside.push(await pictureOf(this.data, this.layouts, pane, { ...how, matches: {} }));
    this.panes = panes;
    if (choice !== this.choice) {
      this.choice = choice;
      this.set("stages", stagesShown(this.kernel, choice));
      this.set("model", describe(this.data, panes, null));
    }
    this.set("picture", picture);
    this.set("beside", beside);
    this.set("found", this.filter.state(panes));
    this.set("lit", this.litIn(panes));
    this.showOverlay();
    void this.attempt("Measuring the overlay", () => this.measureAnew());
  }

  /** Lets the kernel know how the graph is looked at, so that scripts can ask, and pages opened later show it. */
  protected keepView(): void {
    const { stage, compared, beside, between, preview } = this.choice;
    if (preview || !this.panes) return;
    const last = lastStage(this.kernel);
    this.kernel.keep("view", {
      stage: stage === last ? null : stage,
      compared,
      beside,
      between,
      opened: [...this.panes.opened.keys()],
      query: this.filter.query,
      overlay: this.overlay.name,
      selected: this.selection,
      ...this.state.arrangement,
    });
  }

  protected freshGraphs(): Graphs {
    return new Graphs(this.data, () => this.kernel.state.passes.passes);
  }

  /** Shows what a script wants of these stages; what it has not named stays as it is. */
  protected async takeOver(wish: Partial<ViewState>): Promise<void> {
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

export function byPerson(paths: string[]): Map<string, string> {
  return new Map(paths.map((path) => [path, ""]));
}

export function ignore(): void {}
