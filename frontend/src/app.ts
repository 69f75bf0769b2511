/** The inspector: panels around a graph, kept in step with the kernel. */

import { DetailsPanel } from "./panels/details";
import { download, fill, focusedIn, h, iconButton } from "./base/dom";
import { FilterBar } from "./panels/filter_bar";
import type { GraphView } from "./graph/graph_view";
import { Legend } from "./graph/legend";
import { Panes } from "./graph/panes";
import { PassList } from "./panels/pass_list";
import { PreviewBar } from "./panels/preview_bar";
import { rasterised } from "./graph/png";
import { savedPicture, type Drawing, type Side } from "./graph/saved_picture";
import { paintTogether } from "./graph/overlay";
import {
  isNodesFound,
  isPicture,
  readMessage,
  type Before,
  type Details,
  type NodesFound,
  type Overlay,
  type Overlays,
  type Pass,
  type Passes,
  type Picture,
  type Stages,
  type State,
  type ToKernel,
} from "./base/protocol";
import { queryFor } from "./panels/query_help";
import { SearchBox } from "./panels/search_box";
import { splitter } from "./base/splitter";
import { StageBar } from "./graph/stage_bar";
import { Banner, BusyLine } from "./panels/status_bar";
import { TablesPanel } from "./tables/tables";
import { watchTheme } from "./base/theme";
import { clamp } from "./graph/viewport";

/** What the inspector needs of the widget's model. */
export interface Model {
  get<K extends keyof State>(name: K): State[K];
  set<K extends keyof State>(name: K, value: State[K]): void;
  save_changes(): void;
  send(content: ToKernel): void;
  on(event: string, callback: (...values: never[]) => void): void;
  off(event: string, callback: (...values: never[]) => void): void;
}

interface Place {
  kind: Details["kind"];
  name: string;
  before: boolean;
}

/** JupyterLab and Notebook would take the arrow keys for their own. */
const NO_SHORTCUTS = "data-lm-suppress-shortcuts";
const WIDE = 1080;
const MEDIUM = 740;
const PATIENCE_MS = 700;
const LONGEST_TRAIL = 100;
const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "follow edges, go to neighbours"],
  ["Shift + arrows", "move the graph"],
  ["Enter", "open or close a group"],
  ["f", "show all"],
  ["+ −", "zoom"],
  ["/", "search"],
  ["o", "go to the graph beside"],
  ["l", "move both graphs together, or one"],
  ["Backspace", "back to what was selected before"],
  ["Shift + Enter", "show all that a search finds"],
  ["Esc", "end the preview, the filter, clear the selection"],
];

/** Whether a key is meant for what has the focus, and not for the program around. */
function isPlainKey(event: KeyboardEvent): boolean {
  return !event.altKey && !event.ctrlKey && !event.metaKey && !/^F\d+$/.test(event.key);
}

export class App {
  readonly element: HTMLElement;
  private readonly panes: Panes;
  private readonly passes: PassList;
  private readonly details: DetailsPanel;
  private readonly tables: TablesPanel;
  private readonly search: SearchBox;
  private readonly legend = new Legend((name) => this.send({ type: "show-overlay", name }));
  private readonly stages = new StageBar(
    (stage, compared, beside) => this.send({ type: "show-stage", stage, compared, beside }),
    (on) => this.panes.setLinked(on),
  );
  private readonly preview = new PreviewBar({
    apply: (signature) => this.send({ type: "toggle", signature, on: true }),
    cancel: () => this.send({ type: "end-preview" }),
  });
  private readonly filter = new FilterBar(() => this.lightUp(""));
  private readonly busy: BusyLine;
  private readonly banner = new Banner();
  private readonly title = h("h1", {});
  private readonly summary = h("span", { class: "fxi-summary" });
  private readonly main: HTMLElement;
  private readonly detailsSlot = h("div", { class: "fxi-slot fxi-slot-details" });
  private readonly listeners: [string, (...values: never[]) => void][] = [];
  private readonly stopTheme: () => void;
  private readonly resize: ResizeObserver | null;
  private readonly name = Math.random().toString(36).slice(2);
  private picture: Picture | null = null;
  private overlay: Overlay | null = null;
  private state: Passes = { passes: [], canUndo: false, canRedo: false };
  private chosen: string | null = null;
  /** The box that was selected here, until the kernel has said what it is. */
  private wanted: { id: string; before: boolean } | null = null;
  /** What was selected, the present selection last. */
  private readonly trail: Place[] = [];
  private waiting: ReturnType<typeof setTimeout> | undefined;
  /** Messages that the kernel is not done with. */
  private unanswered = 0;
  private requests = 0;
  private searchRequest = "";

  /** `interrupt` stops what the kernel does, where the page can. */
  constructor(
    private readonly model: Model,
    interrupt: (() => Promise<unknown>) | null = null,
  ) {
    this.busy = new BusyLine(interrupt);
    this.panes = new Panes({
      select: (box, id, before) => {
        this.wanted = { id, before };
        if (box.node) this.send({ type: "select-node", name: box.node, show: false, before });
        else this.send({ type: "select-group", path: box.path, before });
        this.tables.openDetails();
      },
      clear: () => this.clear(),
      open: (path) => this.send({ type: "open", path }),
      close: (path) => this.send({ type: "close", path }),
      jump: (name, before) => this.jump(name, before),
      search: () => this.search.focus(),
      back: () => this.goBack(),
      linked: (on) => this.stages.setLinked(on),
    });
    this.passes = new PassList({
      toggle: (pass, on) => this.send({ type: "toggle", signature: pass.signature, on }),
      preview: (signature) =>
        this.send(signature === null ? { type: "end-preview" } : { type: "preview", signature }),
      choose: (signature) => this.choose(signature, true),
      limit: (signature, node, again) => this.limit(signature, node, again),
      jump: (name) => this.jump(name),
      move: (signature, place) => this.send({ type: "move", signature, place }),
      remove: (signature) => this.send({ type: "remove", signature }),
      list: () => this.send({ type: "list-offers", request: this.request() }),
      add: (key, values) => this.send({ type: "add", key, arguments: values }),
      undo: () => this.send({ type: "undo" }),
      redo: () => this.send({ type: "redo" }),
      reset: () => this.send({ type: "reset" }),
    });
    this.details = new DetailsPanel(
      {
        jump: (name) => this.jump(name, this.isBefore),
        selectGroup: (path) => {
          this.wanted = null;
          this.send({ type: "select-group", path, before: this.isBefore });
        },
        open: (path) => this.send({ type: "open", path }),
        lightUp: (field, node) => this.lightUp(queryFor(field, node)),
        locate: (box) => this.panes.focus([box], false, this.isBefore),
        limit: (signature, node, again) => this.limit(signature, node, again),
        clear: () => this.clear(),
      },
      (signature) => {
        const number = this.state.passes.findIndex((pass) => pass.signature === signature);
        const pass = this.state.passes[number];
        return pass ? { pass, number } : null;
      },
    );
    this.tables = new TablesPanel({
      jump: (name, stage) => this.jump(name, false, stage),
      showStage: (stage) => this.stages.goTo(stage),
      retry: () => this.send({ type: "refresh" }),
      judge: () => this.send({ type: "judge" }),
      measure: (name) => this.send({ type: "measure", name }),
      cancel: () => this.busy.cancel(),
      canCancel: () => this.busy.canCancel,
    });
    this.search = new SearchBox({
      search: (query) => {
        this.searchRequest = this.request();
        this.send({ type: "search", query, request: this.searchRequest });
      },
      choose: (result) => {
        if (result.kind === "node") return this.jump(result.name);
        this.wanted = null;
        this.send({ type: "select-group", path: result.name, before: false });
        this.send({ type: "open", path: result.name });
      },
      lightUp: (query) => this.lightUp(query),
      leave: () => this.graph.element.focus({ preventScroll: true }),
    });
    this.main = this.layOut();
    this.element = h(
      "div",
      { class: "fxlab-inspector", role: "region", "aria-label": "fxlab inspector", [NO_SHORTCUTS]: "true" },
      this.header(),
      this.banner.element,
      this.main,
      this.heightHandle(),
    );
    // Before the graph, which would clear the selection.
    this.element.addEventListener("keydown", (event) => this.leave(event), { capture: true });
    // VS Code hears every key that gets out of its page, as a command for the notebook.
    this.element.addEventListener("keydown", (event) => isPlainKey(event) && event.stopPropagation());
    // Notebook 7 asks the focused element before it asks those around it.
    this.element.addEventListener("focusin", (event) =>
      (event.target as Element).setAttribute(NO_SHORTCUTS, "true"),
    );
    this.stopTheme = watchTheme(this.element, ({ dark, highContrast }) => {
      this.element.dataset["theme"] = dark ? "dark" : "light";
      this.element.dataset["contrast"] = highContrast ? "more" : "normal";
    });
    this.resize = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.arrange());
    this.resize?.observe(this.element);
    this.listen();
    this.arrange();
  }

  dispose(): void {
    for (const [event, callback] of this.listeners) this.model.off(event, callback);
    this.stopTheme();
    this.resize?.disconnect();
    this.panes.dispose();
    this.busy.dispose();
    clearTimeout(this.waiting);
  }

  private listen(): void {
    const show: { [K in keyof State]: (value: State[K]) => void } = {
      passes: (passes) => this.showPasses(passes),
      picture: (picture) => this.showPicture(picture),
      before: (before) => this.showBefore(before),
      tables: (tables) => tables?.outputs && this.tables.show(tables),
      measured: (measured) => Array.isArray(measured) && this.tables.showMeasured(measured),
      details: (details) => details?.kind && this.showDetails(details),
      status: (status) => this.showStatus(status),
      overlays: (overlays) => this.showOverlays(overlays),
      stages: (stages) => Array.isArray(stages?.names) && this.showStages(stages),
      found: (found) => this.showFound(isNodesFound(found) ? found : null),
      height: (height) => (this.element.style.height = height ? `${height}px` : ""),
    };
    for (const name of Object.keys(show) as (keyof State)[]) {
      const update = (): void => {
        this.answered();
        (show[name] as (value: State[typeof name]) => void)(this.model.get(name));
      };
      update();
      this.on(`change:${name}`, update);
    }
    this.on("msg:custom", (content: unknown, buffers?: DataView<ArrayBuffer>[]) =>
      this.receive(content, buffers ?? []),
    );
  }

  private get graph(): GraphView {
    return this.panes.graph;
  }

  /** Whether the details are of something in the graph beside. */
  private get isBefore(): boolean {
    return this.model.get("details")?.before === true;
  }

  private on(event: string, callback: (...values: never[]) => void): void {
    this.model.on(event, callback);
    this.listeners.push([event, callback]);
  }

  private send(message: ToKernel): void {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.busy.wait(), PATIENCE_MS);
    this.unanswered += 1;
    this.element.setAttribute("aria-busy", "true");
    try {
      this.model.send(message);
    } catch {
      this.disconnected();
    }
  }

  /** The kernel that this page belongs to is gone; nothing will come of what was asked. */
  private disconnected(): void {
    this.answered();
    this.unanswered = 0;
    this.stages.settle();
    this.element.setAttribute("aria-busy", "false");
    this.showStatus({
      busy: null,
      error: {
        number: -Date.now(),
        title: "The kernel is gone",
        text: "It was stopped or restarted. Run the cell again to go on.",
      },
    });
  }

  private answered(): void {
    clearTimeout(this.waiting);
    this.waiting = undefined;
  }

  private receive(content: unknown, buffers: DataView<ArrayBuffer>[]): void {
    this.answered();
    const message = readMessage(content);
    if (message?.type === "focus") this.panes.focus(message.boxes, message.gently, message.before);
    else if (message?.type === "found" && message.request === this.searchRequest) this.search.show(message);
    else if (message?.type === "offers" && message.request.startsWith(this.name))
      this.passes.showOffers(message.offers);
    else if (message?.type === "dot" && message.request.startsWith(this.name))
      download(this.fileName("dot"), "text/vnd.graphviz", message.text);
    else if (message?.type === "pdf" && message.request.startsWith(this.name) && buffers[0])
      download(this.fileName("pdf"), "application/pdf", new Blob([buffers[0]]));
    else if (message?.type === "done") this.done();
  }

  private done(): void {
    this.unanswered = Math.max(0, this.unanswered - 1);
    this.element.setAttribute("aria-busy", String(this.unanswered > 0));
    this.showStatus(this.model.get("status"));
    if (this.unanswered > 0) return;
    this.legend.choose(this.overlay);
    this.stages.settle();
  }

  private request(): string {
    return `${this.name}-${(this.requests += 1)}`;
  }

  /** Brings a node into sight; one that may not be in what is shown, at a stage that has it. */
  private jump(name: string, before = false, stage: number | null = null): void {
    this.wanted = null;
    this.send(
      stage === null ? { type: "select-node", name, show: true, before } : { type: "show-node", name, stage },
    );
  }

  private goBack(): void {
    if (this.model.get("details")?.kind !== "model") this.trail.pop();
    const place = this.trail.pop();
    if (!place) return this.clear();
    if (place.kind === "node") return this.jump(place.name, place.before);
    this.wanted = null;
    this.send({ type: "select-group", path: place.name, before: place.before });
  }

  /** Notes what is selected, so that the way back is known. */
  private note({ kind, name, path, before = false }: Details): void {
    const place = { kind, name: name ?? path ?? "", before };
    const last = this.trail.at(-1);
    if (
      kind === "model" ||
      (last && last.kind === kind && last.name === place.name && last.before === before)
    )
      return;
    this.trail.push(place);
    if (this.trail.length > LONGEST_TRAIL) this.trail.shift();
  }

  /** Ends a preview or, where there is none, a filter. */
  private leave(event: KeyboardEvent): void {
    const isElsewhere =
      (event.target as Element).closest("input, select, .fxi-menu[open], .fxi-offers") !== null;
    if (event.key !== "Escape" || !(this.preview.preview || this.filter.shown) || isElsewhere) return;
    event.preventDefault();
    event.stopPropagation();
    if (this.preview.preview) this.send({ type: "end-preview" });
    else this.lightUp("");
  }

  private lightUp(query: string): void {
    this.send({ type: "filter", query });
  }

  private showFound(found: NodesFound | null): void {
    const hadFocus = focusedIn(this.filter.element) !== null;
    this.filter.show(found);
    this.panes.setFound(found);
    if (hadFocus && !found) this.graph.element.focus({ preventScroll: true });
  }

  private clear(): void {
    this.wanted = null;
    this.panes.setSelected({ box: null });
    this.send({ type: "clear-selection" });
  }

  /** Takes one rewrite of a pass back, or makes it again. */
  private limit(signature: string, node: string, again: boolean): void {
    this.wanted = null;
    this.send({ type: again ? "include" : "exclude", signature, node });
  }

  private choose(signature: string | null, show: boolean): void {
    this.chosen = signature;
    this.passes.setChosen(signature);
    this.emphasize();
    const number = this.picture?.signatures.indexOf(signature ?? "") ?? -1;
    if (!show || !this.picture || !signature || number < 0) return;
    const lit = Object.entries(this.picture.boxes).filter(
      ([, box]) => box.marks.includes(number) && box.kind !== "cluster",
    );
    if (lit.length > 0 && lit.every(([, box]) => box.node === null))
      return this.send({ type: "reveal-pass", signature });
    const would = Object.keys(this.picture.matches[signature] ?? {});
    this.graph.focus(lit.length > 0 ? lit.map(([id]) => id) : would, true);
  }

  private emphasize(): void {
    const number = this.chosen === null ? -1 : (this.picture?.signatures.indexOf(this.chosen) ?? -1);
    const on = this.state.passes.find((pass) => pass.signature === this.chosen)?.on ?? false;
    const matches = !on && this.chosen ? (this.picture?.matches[this.chosen] ?? {}) : {};
    this.graph.setEmphasis({ mark: number < 0 ? null : number, matches });
  }

  private showPicture(picture: Picture): void {
    if (!isPicture(picture)) return;
    this.picture = picture;
    try {
      this.graph.show(picture);
    } catch (error) {
      this.banner.show({ number: -1, title: "The graph could not be shown", text: String(error) });
      return;
    }
    this.repaint();
    this.emphasize();
  }

  private showBefore(before: Before): void {
    const picture = before?.picture;
    this.panes.showBefore(isPicture(picture) ? picture : null);
    const found = this.model.get("found");
    this.panes.setFound(isNodesFound(found) ? found : null);
    this.repaint();
    const details = this.model.get("details");
    if (details?.kind) this.showSelected(details);
  }

  private showStages(stages: Stages): void {
    const before = this.preview.preview;
    const hadFocus = focusedIn(this.preview.element) !== null;
    this.stages.update(stages);
    this.panes.setStages(stages);
    this.preview.show(stages.preview ?? null);
    this.passes.setPreviewed(stages.preview?.signature ?? null);
    if (hadFocus && before && !stages.preview) this.passes.focus(before.signature);
  }

  private showOverlays(overlays: Overlays): void {
    if (!Array.isArray(overlays?.offered)) return;
    this.overlay = overlays.overlay;
    this.legend.offer(overlays);
    this.repaint();
  }

  private repaint(): void {
    if (!this.picture) return;
    const beside = this.model.get("before")?.picture;
    const graphs: [Overlay | null | undefined, Picture][] = [[this.overlay, this.picture]];
    if (isPicture(beside)) graphs.push([this.model.get("overlays").before, beside]);
    const painted = paintTogether(graphs.filter((graph): graph is [Overlay, Picture] => graph[0] != null));
    this.panes.setPaint(painted);
    this.legend.show(
      graphs.map(([, picture]) => picture),
      this.state.passes,
      painted,
    );
  }

  private showPasses(state: Passes): void {
    if (!Array.isArray(state?.passes)) return;
    const was = new Map(this.state.passes.map((pass) => [pass.key, pass]));
    const changed = (on: boolean): Pass | undefined =>
      state.passes.find((pass) => was.get(pass.key)?.on === !on && pass.on === on);
    this.chosen =
      state.passes.find((pass) => this.chosen !== null && was.get(pass.key)?.signature === this.chosen)
        ?.signature ?? null;
    this.state = state;
    this.element.classList.toggle("fxi-fixed", state.fixed === true);
    this.passes.setChosen(this.chosen, false);
    this.graph.setPassNames(state.passes.map((pass) => pass.name));
    this.passes.show(state);
    if (changed(true)) this.choose(changed(true)!.signature, false);
    else if (changed(false)?.signature === this.chosen) this.choose(null, false);
    else this.emphasize();
    this.repaint();
  }

  private showDetails(details: State["details"]): void {
    this.details.show(details);
    this.note(details);
    this.tables.setSelected(details.kind === "node" ? (details.name ?? null) : null);
    if (details.kind === "model") {
      this.title.textContent = details.title;
      fill(
        this.summary,
        details.fields
          .slice(0, 2)
          .map(({ label, value }) => h("span", {}, `${value} ${label.toLowerCase()}`)),
      );
    }
    this.showSelected(details);
  }

  private showSelected(details: State["details"]): void {
    const isOther = details.box !== this.wanted?.id || (details.before ?? false) !== this.wanted?.before;
    if (this.wanted !== null && isOther) return;
    this.wanted = null;
    this.panes.setSelected(details);
  }

  private showStatus(status: State["status"]): void {
    this.busy.show(status?.busy ?? null);
    this.passes.setBusy(status?.busy != null);
    this.preview.setBusy(status?.busy != null);
    this.element.classList.toggle("fxi-is-busy", status?.busy != null);
    this.banner.show(status?.error ?? null);
    if (status?.error) this.wanted = null;
  }

  private header(): HTMLElement {
    const help = h(
      "details",
      { class: "fxi-menu" },
      h("summary", { class: "fxi-button", title: "Keys", "aria-label": "Keys" }, "?"),
      h(
        "div",
        { class: "fxi-menu-body" },
        h("h3", {}, "Keys"),
        h(
          "dl",
          {},
          KEYS.map(([key, words]) => [h("dt", {}, key), h("dd", {}, words)]),
        ),
      ),
    );
    const close = (menu: HTMLDetailsElement): void => menu.removeAttribute("open");
    const exporting = h(
      "details",
      { class: "fxi-menu" },
      h("summary", { class: "fxi-button", title: "Save the graph as it is shown, or the passes" }, "Export"),
      h(
        "div",
        { class: "fxi-menu-body" },
        h(
          "button",
          { type: "button", class: "fxi-item", onclick: () => (close(exporting), this.saveSvg()) },
          "SVG picture",
        ),
        h(
          "button",
          { type: "button", class: "fxi-item", onclick: () => (close(exporting), void this.savePng()) },
          "PNG picture",
        ),
        h(
          "button",
          {
            type: "button",
            class: "fxi-item fxi-needs-kernel",
            onclick: () => (close(exporting), this.send({ type: "export-pdf", request: this.request() })),
          },
          "PDF",
        ),
        h(
          "button",
          {
            type: "button",
            class: "fxi-item",
            onclick: () => (close(exporting), this.send({ type: "export-dot", request: this.request() })),
          },
          "Graphviz DOT",
        ),
        h(
          "button",
          {
            type: "button",
            class: "fxi-item",
            title: "The passes that are on, as code that applies them",
            onclick: () => (close(exporting), this.saveCode()),
          },
          "Python code",
        ),
        h(
          "button",
          { type: "button", class: "fxi-item", onclick: () => (close(exporting), void this.copyCode()) },
          "Copy Python code",
        ),
      ),
    );
    for (const menu of [help, exporting]) {
      menu.addEventListener(
        "focusout",
        (event) => !menu.contains(event.relatedTarget as Node | null) && close(menu),
      );
      menu.addEventListener("keydown", (event) => event.key === "Escape" && close(menu));
    }
    return h(
      "div",
      { class: "fxi-header" },
      h("div", { class: "fxi-heading" }, this.title, this.summary),
      this.busy.element,
      h("span", { class: "fxi-space" }),
      this.search.element,
      iconButton("layers", "Close the groups that were opened", () => this.send({ type: "overview" })),
      exporting,
      help,
    );
  }

  private layOut(): HTMLElement {
    const size = (name: string): number =>
      parseFloat(getComputedStyle(this.main).getPropertyValue(name)) || 0;
    const set = (name: string, value: number, smallest: number, largest: number): void =>
      this.main.style.setProperty(name, `${clamp(value, smallest, largest)}px`);
    const room = (): number => this.main.clientWidth;
    this.graph.element.append(this.legend.element);
    this.detailsSlot.append(this.details.element);
    return h(
      "div",
      { class: "fxi-main" },
      h("div", { class: "fxi-slot fxi-slot-passes" }, this.passes.element),
      splitter({
        label: "Width of the passes",
        vertical: true,
        grows: true,
        size: () => size("--left"),
        resize: (to) => set("--left", to, 200, room() * 0.4),
      }),
      h(
        "div",
        { class: "fxi-slot fxi-slot-graph" },
        this.stages.element,
        this.preview.element,
        this.filter.element,
        this.panes.element,
      ),
      splitter({
        label: "Width of the details",
        vertical: true,
        grows: false,
        size: () => size("--right"),
        resize: (to) => set("--right", to, 220, room() * 0.45),
      }),
      this.detailsSlot,
      splitter({
        label: "Height of the tables",
        vertical: false,
        grows: false,
        size: () => size("--bottom"),
        resize: (to) => set("--bottom", to, 90, this.main.clientHeight * 0.7),
      }),
      h("div", { class: "fxi-slot fxi-slot-tables" }, this.tables.element),
    );
  }

  private heightHandle(): HTMLElement {
    let height = 0;
    const handle = splitter({
      label: "Height of the inspector",
      vertical: false,
      grows: true,
      size: () => this.element.offsetHeight,
      resize: (to) => {
        height = Math.round(clamp(to, 420, 2400));
        this.element.style.height = `${height}px`;
      },
      done: () => {
        if (!height) return;
        this.model.set("height", height);
        this.model.save_changes();
      },
    });
    handle.classList.add("fxi-height");
    return handle;
  }

  /** Chooses the layout for the width there is; narrow ones show the details as a tab. */
  private arrange(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const layout = width >= WIDE ? "wide" : width >= MEDIUM ? "medium" : "narrow";
    if (this.element.dataset["layout"] === layout) return;
    this.element.dataset["layout"] = layout;
    if (layout === "wide") {
      this.tables.adopt(null);
      this.detailsSlot.append(this.details.element);
    } else {
      this.tables.adopt(this.details.element);
    }
  }

  /** Returns what is shown as it is saved: the graph, and that beside it on its left. */
  private saved(picture: Picture): Drawing {
    const { paints, before } = this.model.get("overlays");
    const [beside, names] = [this.model.get("before")?.picture, this.panes.names];
    const shown: Side = { picture, overlay: this.overlay, name: names.shown };
    return savedPicture(
      isPicture(beside) ? [{ picture: beside, overlay: before ?? null, name: names.before }, shown] : [shown],
      paints,
    );
  }

  private saveSvg(): void {
    if (this.picture) download(this.fileName("svg"), "image/svg+xml", this.saved(this.picture).svg);
  }

  /** Draws the SVG, as it is saved, on a canvas. */
  private async savePng(): Promise<void> {
    if (!this.picture) return;
    const blob = await rasterised(this.saved(this.picture)).catch(() => null);
    if (blob) download(this.fileName("png"), "image/png", blob);
    else
      this.banner.show({
        number: -Date.now(),
        title: "The picture is too large for a PNG",
        text: "Close some groups, or save it as SVG.",
      });
  }

  private saveCode(): void {
    download(this.fileName("py"), "text/x-python", this.state.code ?? "");
  }

  private async copyCode(): Promise<void> {
    const done = await navigator.clipboard?.writeText(this.state.code ?? "").then(
      () => true,
      () => false,
    );
    if (!done)
      this.banner.show({
        number: -Date.now(),
        title: "The browser did not allow copying",
        text: "Save the code as a file instead.",
      });
  }

  private fileName(suffix: string): string {
    const name = (this.title.textContent ?? "").replace(/[^\w.-]+/g, "_").slice(0, 60);
    return `${name || "graph"}.${suffix}`;
  }
}
