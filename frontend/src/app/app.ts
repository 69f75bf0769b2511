/** The inspector: panels around a graph, kept in step with the kernel. */

import { focusedIn, type IconName } from "../base/dom";
import type {
  FileSuffix,
  Focus,
  Model,
  NodesFound,
  Picture,
  SearchAnswer,
  Stages,
  State,
} from "../base/protocol";
import { CodePanel } from "../code/code_panel";
import type { Tool } from "../graph/toolbar";
import { inRow } from "../base/stages";
import { StageBar } from "../panels/stage_bar";
import { DetailsPanel } from "../panels/details";
import { PassList } from "../panels/passes/pass_list";
import { queryFor } from "../base/query_help";
import { SearchBox } from "../panels/search_box";
import { TraceBanner } from "../panels/trace_banner";
import { TablesPanel } from "../tables/tables";
import { Bench } from "./bench";
import { Connection } from "./connection";
import { Exports } from "./exports";
import { Frame } from "./frame";
import { FullScreen } from "./full_screen";
import { GraphArea } from "./graph_area";
import { Header } from "./header";
import { Selection } from "./selection";
import type { Arrangement, PanelState, Pass, Passes, Tables } from "../base/wire";
import { Banner, BusyLine, FilterBar, PreviewBar, VerdictLine } from "../panels/bars";

const TYPES_OF_FILES: Record<FileSuffix, string> = {
  html: "text/html",
  pdf: "application/pdf",
  dot: "text/vnd.graphviz",
};

export class App {
  readonly element: HTMLElement;
  private readonly connection: Connection;
  private readonly frame: Frame;
  private readonly fullScreen: FullScreen;
  private readonly exports: Exports;
  private readonly graphs: GraphArea;
  private readonly selection: Selection;
  private readonly passes: PassList;
  private readonly details: DetailsPanel;
  private readonly code: CodePanel;
  private readonly tables: TablesPanel;
  private readonly search: SearchBox;
  private readonly stages = new StageBar(
    (wish) => this.connection.send({ type: "show-stage", ...wish }),
    (on) => this.graphs.panes.setLinked(on),
  );
  private readonly preview = new PreviewBar({
    apply: (signature) => this.connection.send({ type: "toggle", signature, on: true }),
    cancel: () => this.connection.send({ type: "end-preview" }),
  });
  private readonly bench: Bench;
  private readonly filter = new FilterBar(() => this.lightUp(""));
  private readonly busy: BusyLine;
  private readonly banner = new Banner();
  private readonly verdict = new VerdictLine({
    judge: () => this.connection.send({ type: "judge" }),
    compareAgain: () => this.connection.send({ type: "refresh" }),
  });
  private readonly remarks = new TraceBanner();
  private readonly header: Header;
  private state: Passes = { passes: [], canUndo: false, canRedo: false };
  private chosen: string | null = null;
  private searches = 0;

  /** `interrupt` stops what the kernel does, where the page can; `isKernelBusy` says whether it does anything. */
  constructor(
    private readonly model: Model,
    interrupt: (() => Promise<unknown>) | null = null,
    private readonly isKernelBusy = (): boolean => false,
  ) {
    this.busy = new BusyLine(interrupt);
    this.connection = new Connection(model, {
      waiting: () => this.wait(),
      sent: () => this.element.setAttribute("aria-busy", "true"),
      done: (areMore) => this.answered(areMore),
      lost: () => this.disconnected(),
    });
    this.selection = new Selection(
      model,
      (message) => this.connection.send(message),
      () => this.graphs.panes,
    );
    this.graphs = new GraphArea(
      model,
      {
        select: (box, id, pane) => {
          this.selection.selectBox(box, id, pane);
          this.tables.openDetails();
        },
        clear: () => this.selection.clear(),
        open: (path) => this.connection.send({ type: "open", path }),
        close: (path) => this.connection.send({ type: "close", path }),
        jump: (name, pane) => this.selection.jump(name, pane),
        search: () => this.search.focus(),
        keys: () => this.header.openKeys(),
        back: () => this.selection.goBack(),
        linked: (on) => this.stages.setLinked(on),
        show: (stages) => this.connection.send({ type: "show-stage", ...inRow(stages) }),
      },
      (name) => this.connection.send({ type: "show-overlay", name }),
      (lines) => this.connection.send({ type: "arrange", arrangement: { lines } }),
      [
        this.arrangementTool("nodes", "Sizes, masks and checks one by one", "bookkeeping", [false, true]),
        this.arrangementTool("across", "Lines lead to the right", "direction", ["down", "right"]),
        this.arrangementTool("shapes", "Shapes on lines", "shapes", [false, true]),
        {
          ...{ icon: "unfold", label: "Open all that is closed" },
          press: () => this.connection.send({ type: "open-level" }),
        },
        {
          ...{ icon: "fold", label: "Close the innermost" },
          press: () => this.connection.send({ type: "close-level" }),
        },
        { ...{ icon: "layers", label: "Close opened groups" }, press: () => this.overview() },
        // Where a frame lets nothing fill the screen, as in VS Code, there is nothing to press.
        ...(document.fullscreenEnabled ? [this.fullScreenTool()] : []),
      ],
    );
    this.bench = new Bench(model, {
      send: (message) => this.connection.send(message),
      limit: (signature, node, again) => this.limit(signature, node, again),
      showCode: (node) => {
        this.selection.jump(node);
        this.tables.openCode();
      },
      opened: (isOpen) => this.frame.setCloseUp(isOpen),
    });
    this.passes = new PassList({
      send: (message) => this.connection.send(message),
      choose: (signature) => this.choose(signature),
      limit: (signature, node, again) => this.limit(signature, node, again),
      jump: (name, stage) => this.selection.jump(name, 0, stage),
      step: (pass) => this.bench.step(pass),
      whyNot: (pass, node) => this.bench.whyNot(pass, node),
    });
    this.details = new DetailsPanel(
      {
        jump: (name) => this.selection.jump(name, this.selection.pane),
        selectGroup: (path) => this.selection.selectGroup(path, this.selection.pane),
        open: (path) => this.connection.send({ type: "open", path }),
        lightUp: (field, node) => this.lightUp(queryFor(field, node)),
        locate: (box) => this.graphs.panes.focus([box], false, this.selection.pane),
        limit: (signature, node, again) => this.limit(signature, node, again),
        clear: () => this.selection.clear(),
        whyNot: (pass, node) => this.bench.whyNot(pass, node),
        values: {
          show: () => this.connection.send({ type: "show-values" }),
          on: (inputs) => this.connection.send({ type: "show-values", inputs }),
          part: (tensor, axes) => this.connection.send({ type: "show-part", tensor, ...axes }),
          cancel: () => this.busy.cancel(),
          canCancel: () => this.busy.canCancel,
        },
      },
      (signature) => {
        const number = this.state.passes.findIndex((pass) => pass.signature === signature);
        const pass = this.state.passes[number];
        return pass ? { pass, number } : null;
      },
    );
    this.code = new CodePanel({
      jump: (name, before) => this.selection.jump(name, before && model.get("stages").beside ? 1 : 0),
      look: (on) => this.connection.send({ type: "show-code", on }),
    });
    this.tables = new TablesPanel(
      {
        jump: (name, stage) => this.selection.jump(name, 0, stage),
        showStage: (stage) => this.stages.goTo(stage),
        send: (message) => this.connection.send(message),
        cancel: () => this.busy.cancel(),
        canCancel: () => this.busy.canCancel,
        unfold: () => this.setPanels({ tables: "open" }),
        toggle: () => this.frame.toggle("tables"),
        changed: () => this.frame.arrange(),
      },
      this.code,
    );
    this.search = new SearchBox({
      search: async (query) => {
        const search = (this.searches += 1);
        const found = await this.connection.send<SearchAnswer>({ type: "search", query });
        if (found && search === this.searches) this.search.show(found);
      },
      choose: (result) => {
        if (result.kind === "node") return this.selection.jump(result.name);
        this.selection.selectGroup(result.name);
        this.connection.send({ type: "open", path: result.name });
      },
      lightUp: (query) => this.lightUp(query),
      leave: () => this.graphs.graph.element.focus({ preventScroll: true }),
    });
    this.exports = new Exports({
      drawing: () => this.graphs.drawing(),
      code: () => this.state.code ?? "",
      name: () => this.header.name,
      ask: async (suffix) => {
        const file = await this.connection.send<DataView<ArrayBuffer>>({ type: "export-file", suffix });
        if (file) this.exports.save(suffix, TYPES_OF_FILES[suffix], new Blob([file]));
      },
      fail: (title, text) => this.fail(title, text),
    });
    this.header = new Header(this.busy.element, this.search.element, this.exports.element);
    this.frame = new Frame(
      {
        header: this.header.element,
        banners: [this.verdict.element, this.banner.element, this.remarks.element],
        passes: this.passes.element,
        graph: [
          ...[this.graphs.toolbar.element, this.graphs.legend.element],
          ...[this.stages.element, this.preview.element, this.bench.element, this.filter.element],
          this.graphs.panes.element,
        ],
        details: this.details.element,
        tables: this.tables,
        focusGraph: () => this.graphs.graph.element.focus({ preventScroll: true }),
      },
      { height: (height) => model.set("height", height), panels: (panels) => model.set("panels", panels) },
    );
    this.element = this.frame.element;
    this.fullScreen = new FullScreen(this.element, () => this.graphs.toolbar.refresh());
    // Before the graph, which would clear the selection.
    this.element.addEventListener("keydown", (event) => this.leave(event), { capture: true });
    this.listen();
    this.frame.arrange();
  }

  dispose(): void {
    void this.fullScreen.end();
    this.code.dispose();
    this.connection.dispose();
    this.tables.dispose();
    this.frame.dispose();
    this.graphs.panes.dispose();
    this.busy.dispose();
  }

  private listen(): void {
    this.connection.on("focus", ({ boxes, gently, pane }: Focus) =>
      this.graphs.panes.focus(boxes, gently, pane),
    );
    this.connection.follow({
      passes: (passes) => this.showPasses(passes),
      picture: (picture) => this.showPicture(picture),
      beside: () => {
        this.graphs.showBeside();
        this.frame.setBeside((this.model.get("beside") ?? []).length > 0);
        this.selection.show();
      },
      tables: (tables) => tables?.outputs && this.showTables(tables),
      measured: (measured) => Array.isArray(measured) && this.tables.showMeasured(measured),
      details: (details) => details?.kind && this.showDetails(details),
      model: (model) => model?.kind && this.header.show(model),
      status: (status) => this.showStatus(status),
      overlays: () => this.graphs.showOverlays(),
      stages: (stages) => Array.isArray(stages?.names) && this.showStages(stages),
      code: (code) => code?.state && this.code.show(code),
      values: (values) => values?.state && this.details.showValues(values),
      selected: (selected) => selected?.shown && this.code.setSelected(selected),
      remarks: (remarks) => Array.isArray(remarks?.remarks) && this.remarks.show(remarks),
      found: (found) => this.showFound(found),
      lit: () => this.graphs.showLit(),
      arrangement: () => this.graphs.toolbar.refresh(),
      height: (height) => (this.element.style.height = height ? `${height}px` : ""),
      panels: (panels) => this.showPanels(panels),
    });
  }

  /** Returns a switch between the usual arrangement of a graph and another. */
  private arrangementTool<K extends keyof Arrangement>(
    icon: IconName,
    label: string,
    name: K,
    [usual, other]: [Arrangement[K], Arrangement[K]],
  ): Tool {
    const isOn = (): boolean => this.model.get("arrangement")[name] === other;
    const press = (): void => {
      if (name === "direction") this.graphs.panes.startOver();
      this.connection.send({ type: "arrange", arrangement: { [name]: isOn() ? usual : other } });
    };
    return { icon, label, press, isOn };
  }

  private overview(): void {
    this.graphs.panes.startOver();
    this.connection.send({ type: "overview" });
  }

  private setPanels(chosen: Partial<PanelState>): void {
    this.model.set("panels", { ...this.model.get("panels"), ...chosen });
  }

  private showPanels(panels: PanelState): void {
    this.frame.showPanels(panels);
    this.graphs.toolbar.refresh();
  }

  /** Says that the kernel has not answered, unless it has said what it does. */
  private wait(): void {
    if (!this.model.get("status")?.busy) this.busy.wait(this.isKernelBusy());
  }

  private answered(areMore: boolean): void {
    this.element.setAttribute("aria-busy", String(areMore));
    // What waits for the kernel goes on waiting, whatever the page has answered by itself.
    if (areMore) return;
    this.showStatus(this.model.get("status"));
    this.graphs.settle();
  }

  private disconnected(): void {
    this.element.setAttribute("aria-busy", "false");
    this.showStatus({
      busy: null,
      error: {
        number: -Date.now(),
        title: "Kernel disconnected",
        text: "It was stopped or restarted. Run the cell again to continue.",
      },
    });
  }

  /** Shows an error of the page's own. */
  private fail(title: string, text: string): void {
    this.banner.show({ number: -Date.now(), title, text });
  }

  private fullScreenTool(): Tool {
    return {
      ...{ icon: "expand", label: "Full screen" },
      press: () => void (this.fullScreen.isOn ? this.fullScreen.end() : this.fullScreen.begin()),
      isOn: () => this.fullScreen?.isOn ?? false,
    };
  }

  /** Ends a preview, what is looked at closely, or a filter. */
  private leave(event: KeyboardEvent): void {
    const isElsewhere = (event.target as Element).closest("input, select, .fxi-menu[open]") !== null;
    const isHere = this.preview.preview || this.bench.isOpen || this.filter.shown;
    if (event.key !== "Escape" || !isHere || isElsewhere) return;
    event.preventDefault();
    event.stopPropagation();
    if (this.preview.preview) this.connection.send({ type: "end-preview" });
    else if (this.bench.isOpen) this.bench.close();
    else this.lightUp("");
  }

  private lightUp(query: string): void {
    this.connection.send({ type: "filter", query });
  }

  private showFound(found: NodesFound | null): void {
    const hadFocus = focusedIn(this.filter.element) !== null;
    this.filter.show(found);
    this.graphs.showFound();
    if (hadFocus && !found) this.graphs.graph.element.focus({ preventScroll: true });
  }

  /** Takes one rewrite of a pass back, or makes it again. */
  private limit(signature: string, node: string, again: boolean): void {
    this.selection.settle();
    this.connection.send({ type: again ? "include" : "exclude", signature, node });
  }

  private choose(signature: string | null): void {
    this.chosen = signature;
    this.passes.setChosen(signature);
    this.graphs.choose(signature);
    if (signature && !this.graphs.focusPass(signature))
      this.connection.send({ type: "reveal-pass", signature });
  }

  private showPicture(picture: Picture): void {
    try {
      this.graphs.showPicture(picture);
    } catch (error) {
      this.fail("Showing the graph failed", String(error));
    }
  }

  private showStages(stages: Stages): void {
    const before = this.preview.preview;
    const hadFocus = focusedIn(this.preview.element) !== null;
    this.stages.update(stages);
    this.graphs.panes.setStages(stages);
    this.code.showStages(stages);
    this.preview.show(stages.preview ?? null);
    this.passes.setPreviewed(stages.preview?.signature ?? null);
    if (hadFocus && before && !stages.preview) this.passes.focus(before.signature);
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
    if (changed(true)) this.chosen = changed(true)!.signature;
    else if (changed(false)?.signature === this.chosen) this.chosen = null;
    this.graphs.setPasses(state.passes);
    this.passes.show(state, this.chosen);
    this.bench.follow(state.passes);
    this.showVerdict();
    this.graphs.choose(this.chosen);
  }

  private showTables(tables: Tables): void {
    this.tables.show(tables);
    this.showVerdict();
  }

  private showVerdict(): void {
    const tables = this.model.get("tables");
    if (!tables?.outputs) return;
    const on = this.state.passes.filter((pass) => pass.on).map(({ name }) => name);
    this.verdict.show(tables, on.length > 0, this.state.fixed ? on : []);
  }

  private showDetails(details: State["details"]): void {
    this.details.show(details);
    this.selection.note(details);
    this.tables.setSelected(details.kind === "node" ? (details.name ?? null) : null);
    this.frame.setSelected(details.kind === "model" ? null : details.kind);
    this.selection.show();
  }

  private showStatus(status: State["status"]): void {
    this.busy.show(status?.busy ?? null);
    const isBusy = status?.busy != null && !status.busy.background;
    for (const part of [this.passes, this.preview, this.bench]) part.setBusy(isBusy);
    this.element.classList.toggle("fxi-is-busy", isBusy);
    this.banner.show(status?.error ?? null);
    if (status?.error) this.selection.settle();
  }
}
