/** The tables below the graph, one at a time. */

import { DataTable } from "./data_table";
import {
  beforePaint,
  type Child,
  copyButton,
  fill,
  focusedIn,
  h,
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

/** "details", "outputs", "nodes", or the name of a measured or an extra table. */
type TabName = string;

const TITLES: Record<string, string> = {
  details: "Details",
  outputs: "Output differences",
  nodes: "Changed nodes",
  code: "Code",
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
  private tables: Tables | null = null;
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
    this.more = menu({ title: "More tables" }, "More", this.moreItems);
    this.more.classList.add("fxi-more-tabs");
    const space = h("span.fxi-space");
    const head = h("header.fxi-panel-head.fxi-strip", this.tabs, this.more, space, this.copy, this.fold);
    this.element = h("section.fxi-panel.fxi-column.fxi-tables", { "aria-label": "Tables" }, head, this.body);
    this.tabs.addEventListener("keydown", (event) => this.onKey(event));
    this.stopResize = onResize(head, this.makeRoom);
  }

  dispose(): void {
    this.stopResize();
  }

  /** Whether a table has something to show, without being asked. */
  get hasContent(): boolean {
    const { tables, measured } = this;
    const isMade = measured.some(({ state }) => state !== "none");
    return isMade || (tables !== null && (tables.outputs.table !== null || tables.nodes.table.total > 0));
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
    this.put("outputs", tables.outputs.table, false);
    this.put("nodes", tables.nodes.table);
    for (const { name, table, jumps } of tables.more ?? []) this.put(name, table, jumps);
    if (!this.names().includes(this.open)) this.open = "outputs";
    this.setSelected(this.selected);
    this.render();
    this.tellOfContent();
  }

  showMeasured(measured: Measured[]): void {
    this.measured = measured;
    for (const { name, table } of measured) this.put(name, table);
    this.setSelected(this.selected);
    this.render();
    this.tellOfContent();
  }

  /** Shows a table in its tab, with rows that lead somewhere if it `jumps` or says where to. */
  private put(name: TabName, table: Table | null, jumps = true): void {
    if (!table) return;
    const leads = jumps || table.leads ? this.leading(table) : null;
    if (!this.made.has(name)) this.made.set(name, new DataTable(leads));
    this.made.get(name)!.show(table);
  }

  private tellOfContent(): void {
    if (this.hasContent === this.hadContent) return;
    this.hadContent = this.hasContent;
    this.actions.changed();
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
    const others = [...this.measured, ...(this.tables?.more ?? [])];
    return [
      ...(this.details ? ["details"] : []),
      "outputs",
      "nodes",
      "code",
      ...others.map(({ name }) => name),
    ];
  }

  private render(): void {
    const count = this.tables?.nodes.table.total ?? 0;
    const extra = this.tables?.more?.find(({ name }) => name === this.open);
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
    const measured = this.measured.find(({ name }) => name === this.open);
    this.copy.hidden =
      this.isFolded ||
      !((measured ?? extra)
        ? (measured ?? extra)!.table
        : this.open === "nodes"
          ? count > 0
          : this.open === "outputs" && this.tables?.outputs.table);
    // After the button beside the tabs has come or gone, which takes their room.
    this.makeRoom();
    if (focused) this.tabs.querySelector<HTMLElement>("[tabindex='0']")?.focus();
    this.body.setAttribute("aria-label", this.titleOf(this.open));
    if (this.open === "details") fill(this.body, this.details);
    else if (this.open === "code") {
      // Not anew: what is scrolled and unfolded in it stays so.
      if (this.body.firstChild !== this.code.element) fill(this.body, this.code.element);
    } else if (measured) this.renderMeasured(measured);
    else if (extra) fill(this.body, this.extraTab(extra));
    else if (this.tables)
      fill(this.body, this.open === "outputs" ? this.outputTab(this.tables) : this.nodeTab(this.tables));
    this.code.setOpen(this.open === "code" && !this.isFolded);
    this.shown?.bringIntoView();
  }

  private titleOf(name: TabName): string {
    return (
      TITLES[name] ??
      [...this.measured, ...(this.tables?.more ?? [])].find((table) => table.name === name)?.title ??
      name
    );
  }

  private outputTab({ outputs: { text, table } }: Tables): Child[] {
    return table ? [this.made.get("outputs")!.element] : [line("fxi-muted", text)];
  }

  private nodeTab({ nodes }: Tables): Child[] {
    return [line("fxi-muted", nodes.text), nodes.table.total > 0 && this.made.get("nodes")!.element];
  }

  private extraTab({ name, text, table }: ExtraTable): Child[] {
    return [line("fxi-muted", text), table && this.made.get(name)!.element];
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
