/** The viewer decides which stages are shown, and answers people and kernels; what the page does not know, it asks the kernel for. */

import { type Asking, FOR_SESSION, type LookedAt, type ToSession, type ToViewer } from "../base/protocol";
import { possible } from "../base/stages";
import type { Layouts } from "./drawing/layout";
import { matchesIn } from "./drawing/picture";
import { arrangementIn, CHANGES, LIT, PLAIN, withBookkeeping } from "./graphs/panes";
import type { Kernel, KernelState } from "./kernels/kernel";
import { byPerson, ignore, Screen } from "./screen";
import { NodeFilter } from "./search/node_filter";
import {
  chosen,
  fetchGraphs,
  graphsOf,
  lastStage,
  placeOf,
  stagesShown,
  type Choice,
} from "./stages/stage_choice";
import type { ViewState } from "../base/wire";
import { ShownCode } from "./stages/codes";
import { AppliedPasses, Candidates, changedBy, unknownCandidates } from "./stages/passes";

/** More are not shown because somebody opens all groups at once. */
const MOST_BOXES = 400;

export class Viewer extends Screen {
  private readonly applied: AppliedPasses;
  private readonly candidates: Candidates;
  private readonly code: ShownCode;
  private version = -1;
  /** How often a stage was asked for: only the last that was is shown. */
  private looks = 0;

  constructor(kernel: Kernel, layouts: Layouts) {
    super(kernel, layouts);
    this.applied = new AppliedPasses(kernel);
    this.candidates = new Candidates(kernel);
    this.code = new ShownCode(
      kernel,
      () => this.panes && this.choice,
      (code) => this.set("code", code),
    );
    kernel.follow((name, view) => this.follow(name, view));
    void this.enqueue("Drawing the graph", () => this.start());
  }

  /** Asks whoever has to do it, and throws at once if that is nobody; what changes the picture waits for its turn. */
  send(message: ToViewer): Promise<unknown> {
    const attempt = (action: () => Promise<void>): Promise<unknown> =>
      this.attempt(doing(message.type), action);
    switch (message.type) {
      case "export-file":
        return this.kernel
          .ask({ type: "file", suffix: message.suffix })
          .then(({ buffers }) => buffers[0], ignore);
      case "rewrite":
      case "near-miss":
        return this.kernel.ask(message).then(({ value }) => value, ignore);
      case "light":
        return attempt(() => this.light(message));
      case "show-stage":
        return attempt(() => this.look(message));
      case "show-node":
        return attempt(() => this.showNode(message.name, message.stage));
      case "show-overlay":
        return attempt(() => this.chooseOverlay(message.name));
      case "show-code":
        return attempt(() => this.code.look(message.on));
      case "show-values":
        return attempt(() => this.values.look(message.inputs));
      case "show-part": {
        const { type: _, tensor, ...axes } = message;
        return attempt(() => this.values.choose(tensor, axes));
      }
      default:
        if (isForSession(message)) return this.kernel.ask(message).then(ignore, ignore);
        return this.enqueue<unknown>(doing(message.type), () => this.answer(message));
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

  private async answer(message: Exclude<ToViewer, ToSession | Asking>): Promise<unknown> {
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
        return this.selectNode(panes.find(message.name, message.pane), message.show);
      case "select-group":
        return this.select({ kind: "group", name: message.path, pane: message.pane });
      case "clear-selection":
        return this.select(null);
      case "reveal-pass":
        return this.revealPass(message.signature);
      case "search":
        return panes.scene.search.find(message.query);
      case "filter":
        return this.lightUp(message.query);
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
    const last = lastStage(this.kernel);
    const isNew = isOther || this.choice.preview?.graph !== stages.preview?.graph;
    if (!isNew) return this.set("stages", stagesShown(this.kernel, this.choice));
    return this.look(possible(view, Math.min(view.stage ?? last, last)), isQueued);
  }

  /** Looks at a stage, alone or compared with others; what has not arrived is asked for. */
  private async look(wish: LookedAt, isQueued = false): Promise<void> {
    const look = (this.looks += 1);
    const choice = chosen(this.kernel, wish);
    if (!choice.preview) {
      await fetchGraphs(this.kernel, choice);
      if (look !== this.looks) return;
    }
    const show = (): Promise<void> => this.show(choice);
    await (isQueued ? show() : this.enqueue("Showing the stage", show));
  }

  /** Lights nodes up in a stage. */
  private async light({ stage, compared, roles }: Extract<ToViewer, { type: "light" }>): Promise<void> {
    const { choice, roles: before } = this;
    this.roles = roles;
    if (stage !== null && (choice.preview || choice.stage !== stage || choice.compared !== compared))
      await this.look(possible({ compared, beside: false, between: [] }, stage));
    await this.enqueue(doing("light"), () => this.lightNodes(roles, before));
  }

  private async show(choice: Choice): Promise<void> {
    const place = placeOf(this.kernel, choice);
    // The session has changed meanwhile, and what it is now is about to be shown.
    if (place === undefined) return;
    if (this.data !== this.kernel.data) {
      this.data = this.kernel.data;
      this.graphs = this.freshGraphs();
    }
    choice.alone = graphsOf(this.kernel, choice);
    const first = this.panes === null;
    const { view } = this.kernel.state;
    const after = typeof place === "number" ? place : this.data.pairs[place.at(-1)!]!.after;
    const opened = this.panes?.opened ?? byPerson(view.opened ?? this.data.graphs[after]!.opened);
    let panes = this.graphs.panesOf(place, opened);
    const switched = this.applied.switched();
    for (const key of switched.off) panes = panes.forget(key);
    panes = panes.forget(CHANGES);
    if (choice.before !== null || choice.preview)
      panes.all.forEach(({ scene }, i) => (panes = panes.revealFor(CHANGES, scene.marked, i)));
    else
      for (const { key, signature } of switched.on)
        panes = panes.revealFor(key, changedBy(signature, panes), 0);
    this.filter = new NodeFilter(this.filter.query);
    if (this.filter.query) panes = this.filter.uncovered(panes);
    panes = panes.revealFor(LIT, Object.keys(this.roles), 0);
    if (first) this.set("arrangement", arrangementIn(view, PLAIN));
    if (this.state.arrangement.bookkeeping) panes = withBookkeeping(panes, true);
    await this.draw(panes, choice);
    this.keepWhatIsThere();
    const changed = choice.preview
      ? panes.scene.marked
      : switched.on.flatMap(({ signature }) => changedBy(signature, panes));
    // A report begins at what its last pass that changed anything has done.
    if (first && this.kernel.isFixed) this.focus(this.applied.lastChanged(panes));
    else if (changed.length > 0 && !first) this.focus(changed, 0, true);
    this.keepView();
    void this.attempt(doing("show-code"), () => this.code.update());
    void this.attempt("Reading the graph", () => this.fetchRest());
    void this.attempt("Looking for candidates", () => this.fetchCandidates());
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

  private async fetchCandidates(): Promise<void> {
    const arrived = (): Promise<unknown> => this.enqueue("Showing the candidates", () => this.showMatches());
    try {
      if (!(await this.candidates.fetch(arrived))) return;
    } catch {
      // A saved notebook may be opened without a kernel, before any page has asked.
      return this.set("passes", unknownCandidates(this.kernel.state.passes));
    }
    // What passes say of a node is known only now.
    this.extras.clear();
    this.showDetails();
  }

  private showMatches(): void {
    if (!this.panes || this.data !== this.kernel.data) return;
    this.set("picture", { ...this.state.picture, matches: matchesIn(this.data, this.panes.shown.view) });
  }

  private async renew(): Promise<void> {
    if (!this.graphs.renew() || !this.panes) return;
    const place = placeOf(this.kernel, this.choice);
    if (place === undefined) return;
    await this.redraw(this.graphs.panesOf(place, this.panes.opened));
  }

  /** Selects a node, at a stage that has it if what is shown has not. */
  private async showNode(name: string, stage: number): Promise<void> {
    const isShown = this.panes?.all.some((_, pane) => this.panes!.holds({ kind: "node", name, pane }));
    if (!isShown) await this.look(possible(this.choice, stage));
    await this.enqueue(doing("select-node"), () => this.selectNode(this.panes!.find(name, 0), true));
  }

  // The view as a kernel knows it.

  /** Looks at the graph as a script wants it; what it has not changed stays as it is. */
  private async followView(wish: Partial<ViewState>): Promise<void> {
    await this.kernel.ready();
    const { choice } = this;
    const { stage, compared, beside, between = [] } = { ...choice, ...wish };
    const view = { stage: stage ?? lastStage(this.kernel), compared, beside, between };
    const isOther = (Object.keys(view) as (keyof LookedAt)[]).some(
      (name) => String(view[name]) !== String(choice[name]),
    );
    if (!choice.preview && isOther) await this.look(view);
    await this.enqueue("Showing the view", () => this.takeOver(wish));
  }
}

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
  "show-stage": "Showing the stage",
  "show-node": "Showing the node",
  "show-overlay": "Showing the overlay",
  "show-code": "Showing the code",
  "show-values": "Computing the values",
  "show-part": "Reading the values",
};

/** Says what is being done, for errors. */
export function doing(type: ToViewer["type"]): string {
  return DOING[type] ?? "The request";
}

export function isForSession(message: ToViewer): message is ToSession {
  return (FOR_SESSION as readonly string[]).includes(message.type);
}
