/** The tables below the graph, one at a time. */

import { DataTable } from "./data_table";
import {
  beforePaint,
  type Child,
  copyButton,
  fill,
  focusedIn,
  h,
  icon,
  iconButton,
  menu,
  menuItem,
  onResize,
  textButton,
} from "../base/dom";
import { grouped } from "../base/format";
import type { ToSession } from "../base/protocol";
import type { CodePanel } from "../code/code_panel";
import type { ExtraTable, Measured, Table, Tables } from "../base/wire";

export interface TableActions {
  /** Goes to a node: in the graph that is shown, or at a stage that has it. */
  jump(node: string, stage?: number): void;
  showStage(stage: number): void;
  send(message: ToSession): void;
  cancel(): void;
  canCancel(): boolean;
  /** Somebody wants to see a table. */
  unfold(): void;
  /** Somebody wants to see none, or one after all. */
  toggle(): void;
  /** There is something in them now, or no longer. */
  changed(): void;
}

/** "details", "outputs", "nodes", "code", or the name of a measured or an extra table. */
type TabName = string;

/** A table with words above it. */
type Content = Measured | Omit<ExtraTable, "jumps"> | ExtraTable;

const NO_TABLES: Tables = {
  outputs: { state: "none", text: "", table: null },
  nodes: { text: "", table: { columns: [], rows: [], total: 0 } },
};

export class TablesPanel {
  readonly element: HTMLElement;
  private readonly body = h("div.fxi-tab-body.fxi-grow.fxi-column", { role: "tabpanel", tabindex: -1 });
  private readonly tabs = h("div.fxi-tabs", { role: "tablist", "aria-label": "Tables" });
  /** Tabs for which the line has no room. */
  private readonly more: HTMLDetailsElement;
  private readonly moreItems = h("div");
  private readonly copy: HTMLButtonElement;
  private readonly fold: HTMLButtonElement;
  private readonly stopResize: () => void;
  private isFolded = false;
  private hadContent = false;
  /** By their tabs. */
  private readonly made = new Map<TabName, DataTable>();
  private tables = NO_TABLES;
  private measured: Measured[] = [];
  private open: TabName = "outputs";
  private details: HTMLElement | null = null;
  private selected: string | null = null;

  constructor(
    private readonly actions: TableActions,
    private readonly code: CodePanel,
  ) {
    this.copy = copyButton("Copy the table, tab-separated", () => this.shown?.toTsv() ?? "");
    this.fold = iconButton("panelBottom", "Tables panel", () => this.actions.toggle());
    this.more = menu({ title: "More tables" }, ["More", icon("chevron")], this.moreItems);
    this.more.classList.add("fxi-more-tabs");
    const space = h("span.fxi-grow");
    const head = h("header.fxi-panel-head.fxi-strip", this.tabs, this.more, space, this.copy, this.fold);
    this.element = h(
      "section.fxi-panel.fxi-grow.fxi-column.fxi-tables",
      { "aria-label": "Tables" },
      head,
      this.body,
    );
    this.tabs.addEventListener("keydown", (event) => this.onKey(event));
    this.stopResize = onResize(head, this.makeRoom);
  }

  dispose(): void {
    this.stopResize();
  }

  /** Whether a table has something to show, without being asked. */
  get hasContent(): boolean {
    const { outputs, nodes } = this.tables;
    return this.measured.some(({ state }) => state !== "none") || !!outputs.table || nodes.table.total > 0;
  }

  /** Leaves the line of tabs alone. */
  setFolded(isFolded: boolean): void {
    const isOther = isFolded !== this.isFolded;
    this.isFolded = isFolded;
    if (isFolded && focusedIn(this.body)) this.tabs.querySelector<HTMLElement>("[tabindex='0']")?.focus();
    this.body.hidden = isFolded;
    this.fold.setAttribute("aria-expanded", String(!isFolded));
    this.fold.title = isFolded ? "Open the tables" : "Fold the tables";
    if (isOther) this.render();
  }

  /** Arrow keys go from tab to tab, and show its table unless all are folded. */
  private onKey(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const tabs = [...this.tabs.querySelectorAll<HTMLElement>("[role=tab]:not([hidden])")];
    const at = tabs.findIndex((tab) => tab.dataset["tab"] === this.open);
    this.open = tabs[(at + step + tabs.length) % tabs.length]?.dataset["tab"] ?? this.open;
    this.render();
    this.tabs.querySelector<HTMLElement>("[tabindex='0']")?.focus();
  }

  private choose(name: TabName): void {
    this.open = name;
    this.render();
    this.actions.unfold();
  }

  /** Keeps the tabs on one line: those for which there is no room are in a menu. */
  private readonly makeRoom = beforePaint(() => {
    const tabs = [...this.tabs.children] as HTMLElement[];
    for (const tab of tabs) tab.hidden = false;
    this.more.hidden = true;
    const hidden: HTMLElement[] = [];
    for (const tab of tabs.reverse()) {
      if (this.tabs.scrollWidth <= this.tabs.clientWidth) break;
      // The menu itself takes room, so it is there before the first tab goes.
      this.more.hidden = false;
      if (tab.dataset["tab"] === this.open) continue;
      tab.hidden = true;
      hidden.unshift(tab);
    }
    fill(this.moreItems, [
      hidden.map(({ dataset, textContent }) =>
        menuItem(textContent, () => {
          this.choose(dataset["tab"]!);
          this.tabs.querySelector<HTMLElement>("[tabindex='0']")?.focus();
        }),
      ),
    ]);
  });

  show(tables: Tables): void {
    this.tables = tables;
    this.update();
  }

  showMeasured(measured: Measured[]): void {
    this.measured = measured;
    this.update();
  }

  private update(): void {
    for (const content of this.contents) this.put(content);
    if (!this.names().includes(this.open)) this.open = "outputs";
    this.setSelected(this.selected);
    this.render();
    if (this.hasContent === this.hadContent) return;
    this.hadContent = this.hasContent;
    this.actions.changed();
  }

  /** What the tabs show, but for the details and the code. */
  private get contents(): Content[] {
    const { outputs, nodes, more = [] } = this.tables;
    const [text, table] = [outputs.table ? "" : outputs.text, nodes.table.total > 0 ? nodes.table : null];
    return [
      { name: "outputs", title: "Output differences", text, table: outputs.table, jumps: false },
      { name: "nodes", title: "Changed nodes", text: nodes.text, table },
      ...this.measured,
      ...more,
    ];
  }

  /** Shows a table in its tab, with rows that lead somewhere if it `jumps` or says where to. */
  private put({ name, table, ...content }: Content): void {
    if (!table) return;
    const jumps = !("jumps" in content) || content.jumps || table.leads;
    if (!this.made.has(name)) this.made.set(name, new DataTable(jumps ? this.leading(table) : null));
    this.made.get(name)!.show(table);
  }

  /** Returns what a click on a row of a table does. */
  private leading({ leads }: Table): TableActions["jump"] {
    if (leads === "stages") return (_, stage) => this.actions.showStage(stage!);
    if (leads === "batches") return (_, number) => this.actions.send({ type: "open-batch", number: number! });
    return this.actions.jump;
  }

  /** Marks the row of a node in all tables. */
  setSelected(name: string | null): void {
    this.selected = name;
    for (const table of this.made.values()) table.setSelected(name);
  }

  /** The table on the screen. */
  private get shown(): DataTable | undefined {
    return this.made.get(this.open);
  }

  /** In narrow layouts the details are one of the tabs. */
  adopt(details: HTMLElement | null): void {
    if (details === this.details) return;
    this.details = details;
    if (this.open === "details" && !details) this.open = "outputs";
    this.render();
  }

  openDetails(): void {
    if (!this.details) return;
    this.open = "details";
    this.render();
  }

  openCode(): void {
    this.choose("code");
  }

  private names(): TabName[] {
    const [outputs, nodes, ...others] = this.contents.map(({ name }) => name);
    return [...(this.details ? ["details"] : []), outputs!, nodes!, "code", ...others];
  }

  private render(): void {
    const count = this.tables.nodes.table.total;
    const content = this.contents.find(({ name }) => name === this.open);
    const focused = focusedIn(this.tabs);
    fill(this.tabs, [
      this.names().map((name) => {
        const isOpen = name === this.open;
        return h(
          "button.fxi-row",
          {
            ...{ role: "tab", "data-tab": name },
            "aria-selected": String(isOpen && !this.isFolded),
            tabindex: isOpen ? 0 : -1,
            onclick: () => this.choose(name),
          },
          this.titleOf(name),
          name === "nodes" && count > 0 && h("span.fxi-count", grouped(count)),
        );
      }),
    ]);
    this.copy.hidden = this.isFolded || !content?.table;
    // After the button beside the tabs has come or gone, which takes their room.
    this.makeRoom();
    if (focused) this.tabs.querySelector<HTMLElement>("[tabindex='0']")?.focus();
    this.body.setAttribute("aria-label", this.titleOf(this.open));
    if (this.open === "details") fill(this.body, this.details);
    else if (this.open === "code") {
      // Not anew: what is scrolled and unfolded in it stays so.
      if (this.body.firstChild !== this.code.element) fill(this.body, this.code.element);
    } else if (content && "action" in content) this.renderMeasured(content);
    else if (content)
      fill(this.body, [
        content.text && line("fxi-muted", content.text),
        content.table && this.made.get(content.name)!.element,
      ]);
    this.code.setOpen(this.open === "code" && !this.isFolded);
    this.shown?.bringIntoView();
  }

  private titleOf(name: TabName): string {
    const known = { details: "Details", code: "Code" }[name];
    return known ?? this.contents.find((content) => content.name === name)?.title ?? name;
  }

  private renderMeasured({ name, state, text, action, table }: Measured): void {
    const focused = focusedIn(this.body)?.hasAttribute("data-measure");
    const isPending = state === "pending";
    const press = state === "none" ? action : isPending ? "Measuring …" : "Measure again";
    const more = { "data-measure": name, disabled: isPending };
    const again = textButton(press, "", () => this.actions.send({ type: "measure", name }), more);
    const canCancel = isPending && this.actions.canCancel();
    const words = line(
      state === "failed" ? "fxi-bad" : "fxi-muted",
      text,
      [again, canCancel && textButton("Cancel", "", this.actions.cancel)],
      isPending && h("span.fxi-spinner", { "aria-hidden": "true" }),
    );
    fill(this.body, words, table && this.made.get(name)!.element);
    if (focused) again.focus();
  }
}

/** Returns the line of words above a table. */
function line(look: string, text: string, more: Child[] = [], sign: Child = null): HTMLElement {
  return h("p.fxi-words.fxi-row", { class: look, role: "status" }, [sign, h("span", text), more]);
}
