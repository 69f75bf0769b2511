/** The generated Python of the stage that is shown and, where two are compared, what is different line by line. */

import { copyButton, debounce, fill, focusedIn, h, icon, onResize, textButton } from "../base/dom";
import { addTo, counted, grouped } from "../base/format";
import { type Code, NO_CODE, type SelectedNodes, type Stages } from "../base/protocol";
import { clamp } from "../base/rectangles";
import { titleOfStage } from "../base/stages";
import {
  folded,
  MOST_AT_ONCE,
  rowsOf,
  textOf,
  unfolded,
  wordsOf,
  type Row,
  type Stretch,
  type Words,
} from "./code_rows";
import type { CodeChange } from "../base/wire";

export interface CodeActions {
  /** Shows a node; `before` is that of the stage that is compared with. */
  jump(node: string, before: boolean): void;
  /** Somebody looks at the code, or does no longer. */
  look(on: boolean): void;
}

type Side = "before" | "after";

/** Rows that a browser lays out, or leaves out while they are not on the screen, together. */
const CHUNK = 100;
/** Narrower, two columns would wrap most lines. */
const WIDE = 900;
/** Rows around a selected one in a fold that is opened for it. */
const AROUND = 20;
const PAGE = 20;
/** What arrow keys stop at. */
const STOPS = ".fxi-code-cell, .fxi-code-fold > button";

export class CodePanel {
  readonly element: HTMLElement;
  private readonly words = h("span.fxi-grow", { role: "status" });
  private readonly layout: HTMLElement;
  private readonly everything: HTMLButtonElement;
  private readonly copy: HTMLButtonElement;
  private readonly grid = h("div.fxi-code-lines.fxi-grow", { role: "grid", "aria-label": "Generated code" });
  private readonly stopResize: () => void;
  private code = NO_CODE;
  private stages: Stages | null = null;
  private rows: Row[] = [];
  private stretches: Stretch[] = [];
  private selected: SelectedNodes = { shown: [], before: [] };
  /** Side and name of a node -> the rows of its lines. */
  private rowsOfNodes: Record<Side, Map<string, number[]>> = { before: new Map(), after: new Map() };
  private marked: HTMLElement[] = [];
  private isOpen = false;
  private isWide = true;
  private wantsUnified = false;
  /** The cell that the Tab key leads to. */
  private current: HTMLElement | null = null;

  /** `atOnce` is how many lines are on the screen at first, and unfolded by one press. */
  constructor(
    private readonly actions: CodeActions,
    private readonly atOnce = MOST_AT_ONCE,
  ) {
    const choice = (label: string, unified: boolean): HTMLButtonElement =>
      textButton(label, "", () => this.chooseLayout(unified), {
        "aria-pressed": unified === this.wantsUnified,
      });
    this.layout = h("div.fxi-code-layout", { role: "group", "aria-label": "Layout of the difference" }, [
      choice("Side by side", false),
      choice("Unified", true),
    ]);
    this.everything = textButton("Show all lines", "", () => this.showAll());
    this.copy = copyButton("Copy the code", () => textOf(this.code));
    this.element = h("div.fxi-code-panel.fxi-grow.fxi-column", [
      h("div.fxi-code-bar.fxi-row.fxi-muted", this.words, this.everything, this.layout, this.copy),
      this.grid,
    ]);
    this.grid.addEventListener("click", (event) => this.clicked(event));
    this.grid.addEventListener("keydown", (event) => this.pressed(event));
    this.grid.addEventListener("focusin", (event) => this.focused(event));
    this.stopResize = onResize(this.element, () => this.measure());
  }

  dispose(): void {
    if (this.isOpen) this.actions.look(false);
    this.stopResize();
  }

  /** Says whether the panel is on the screen; it asks for the code when it is. */
  setOpen(open: boolean): void {
    if (open === this.isOpen) return;
    this.isOpen = open;
    this.actions.look(open);
    if (open) this.bringSelectedIntoView();
  }

  show(code: Code): void {
    if (code === this.code) return;
    this.code = code;
    this.render();
  }

  /** Names the stages whose code is shown. */
  showStages(stages: Stages): void {
    this.stages = stages;
    this.describe();
  }

  /** Marks the lines of selected nodes, and brings the first into sight. */
  setSelected(selected: SelectedNodes): void {
    if (JSON.stringify(selected) === JSON.stringify(this.selected)) return;
    this.selected = selected;
    this.bringSelectedIntoView();
  }

  private get isUnified(): boolean {
    return this.wantsUnified || !this.isWide;
  }

  private render(): void {
    const { code } = this;
    const isCompared = code.before !== null;
    this.current = null;
    this.describe();
    this.layout.hidden = !isCompared || !this.isWide;
    this.copy.hidden = code.state !== "ready";
    this.copy.title = isCompared ? "Copy the unified difference" : "Copy the code";
    this.grid.classList.toggle("fxi-code-beside", isCompared && !this.isUnified);
    const longest = Math.max(code.after.length, code.before?.length ?? 0);
    this.grid.style.setProperty("--digits", String(String(longest).length));
    this.rows = code.state === "ready" ? rowsOf(code, this.isUnified) : [];
    this.stretches = folded(this.rows, isCompared, this.atOnce);
    this.rowsOfNodes = { before: new Map(), after: new Map() };
    this.rows.forEach((row, number) => {
      for (const side of ["before", "after"] as const)
        for (const node of this.nodesOf(row, side)) addTo(this.rowsOfNodes[side], node, number);
    });
    this.grid.hidden = this.rows.length === 0;
    this.grid.setAttribute("aria-rowcount", String(this.rows.length));
    fill(this.grid, [this.stretches.map((stretch) => this.stretch(stretch))]);
    this.grid.scrollTop = 0;
    this.showFolds();
    this.bringSelectedIntoView();
    this.setCurrent(this.grid.querySelector<HTMLElement>(STOPS));
  }

  private describe(): void {
    const { code, stages } = this;
    const named = (stage: number): string => (stages ? titleOfStage(stages.names, stage) : "");
    const parts: (string | Node)[] = [];
    if (code.state === "pending") parts.push("Writing the code …");
    else if (code.state === "failed") parts.push(code.text);
    else if (code.state === "ready" && stages) {
      const { preview, shown } = stages;
      const after = preview ? `preview of ${preview.name}` : named(shown);
      const before = named(preview ? shown : (stages.before ?? 0));
      parts.push(h("strong", code.before ? `${before} → ${after}` : after), ": ", this.counts());
      if (!code.isLinked)
        parts.push(" · This torch does not tell which nodes lines are of, so they lead nowhere.");
    }
    fill(this.words, parts);
  }

  private counts(): string {
    const { before, after, runs } = this.code;
    const lines = counted(after.length, "line");
    if (!before) return lines;
    const count = (kind: CodeChange): number =>
      runs.reduce((sum, [other, length]) => (other === kind ? sum + length : sum), 0);
    const changes = (["changed", "removed", "added"] as const).flatMap((kind) =>
      count(kind) > 0 ? `${grouped(count(kind))} ${kind}` : [],
    );
    return changes.length > 0 ? `${changes.join(", ")} · ${lines}` : `no difference in ${lines}`;
  }

  // Rows.

  private stretch(stretch: Stretch): HTMLElement {
    return stretch.isOpen ? this.opened(stretch) : this.fold(stretch);
  }

  private opened({ start, stop }: Stretch): HTMLElement {
    const group = h("div", { role: "presentation", "data-start": start });
    for (let first = start; first < stop; first += CHUNK) {
      const last = Math.min(stop, first + CHUNK);
      const chunk = h("div.fxi-code-chunk", { role: "rowgroup", style: `--rows: ${last - first}` });
      for (let number = first; number < last; number += 1) chunk.append(this.row(this.rows[number]!, number));
      group.append(chunk);
    }
    return group;
  }

  private fold(stretch: Stretch): HTMLElement {
    const count = stretch.stop - stretch.start;
    const isEqual =
      this.code.before !== null &&
      this.rows.slice(stretch.start, stretch.stop).every(({ kind }) => kind === "same");
    const words = `${grouped(count)} ${isEqual ? "equal lines" : "more lines"}`;
    const shown = Math.min(count, this.atOnce);
    return h("div", { role: "rowgroup", "data-start": stretch.start }, [
      h("div.fxi-code-row", { role: "row", "aria-rowindex": stretch.start + 1 }, [
        h("div.fxi-code-fold", { role: "gridcell", "aria-colspan": 2 }, [
          h(
            "button.fxi-row",
            {
              tabindex: -1,
              title: shown < count ? `Show ${grouped(shown)} of them` : "Show them",
              onclick: () => this.unfold(stretch, stretch.start, stretch.start + this.atOnce, true),
            },
            icon("chevron"),
            words,
          ),
        ]),
      ]),
    ]);
  }

  private row(row: Row, number: number): HTMLElement {
    const { before } = this.code;
    const isBeside = before !== null && !this.isUnified;
    const words = row.pair && wordsOf(before![row.pair[0]]!.text, this.code.after[row.pair[1]]!.text);
    const sides: Side[] = isBeside ? ["before", "after"] : [row.after === null ? "before" : "after"];
    return h("div.fxi-code-row", { role: "row", "aria-rowindex": number + 1 }, [
      sides.map((side) => this.cell(row, number, side, words?.[side === "before" ? 0 : 1] ?? null)),
    ]);
  }

  private cell(row: Row, number: number, side: Side, words: Words[] | null): HTMLElement {
    const place = row[side];
    const line = place === null ? null : this.linesOf(side)[place]!;
    const look = line && (row.kind === "same" ? "same" : side === "before" ? "removed" : "added");
    const attributes = {
      class: `fxi-code-cell fxi-code-${look ?? "none"}${line?.nodes.length ? " fxi-code-linked" : ""}`,
      ...{ role: "gridcell", tabindex: -1, "data-row": number, "data-side": side },
      ...(line ? { "data-line": place! + 1 } : { "aria-label": "no line" }),
    };
    if (!line || look === "same") return h("div", attributes, line?.text);
    const parts = words?.map((part) => (part.differs ? h("mark", part.text) : part.text)) ?? line.text;
    return h("div", attributes, h(look === "removed" ? "del" : "ins", [parts]));
  }

  private linesOf(side: Side): Code["after"] {
    return (side === "before" ? this.code.before : this.code.after) ?? [];
  }

  private nodesOf(row: Row, side: Side): string[] {
    const place = row[side];
    return place === null ? [] : this.linesOf(side)[place]!.nodes;
  }

  // Folds.

  private unfold(fold: Stretch, from: number, to: number, takesFocus = false): void {
    const place = this.stretches.indexOf(fold);
    const old = this.grid.children[place];
    if (place < 0 || !old) return;
    const others = unfolded(fold, from, to);
    this.stretches.splice(place, 1, ...others);
    const elements = others.map((stretch) => this.stretch(stretch));
    old.replaceWith(...elements);
    this.mark();
    this.showFolds();
    if (!takesFocus) return;
    const first = elements[0]!.querySelector<HTMLElement>(".fxi-code-cell");
    this.setCurrent(first);
    first?.focus({ preventScroll: true });
  }

  private showAll(): void {
    const hadFocus = focusedIn(this.everything) !== null;
    for (const fold of this.stretches.filter(({ isOpen }) => !isOpen))
      this.unfold(fold, fold.start, fold.start + this.atOnce);
    if (hadFocus) this.current?.focus({ preventScroll: true });
  }

  private showFolds(): void {
    this.everything.hidden = this.stretches.every(({ isOpen }) => isOpen);
  }

  // What is selected.

  /** Marks the lines of what is selected, as far as they are not folded. */
  private mark(): void {
    for (const cell of this.marked) {
      cell.classList.remove("fxi-code-selected");
      cell.removeAttribute("aria-selected");
    }
    const cells = this.selectedRows().flatMap(([side, row]) => this.cellOf(row, side) ?? []);
    this.marked = cells;
    for (const cell of cells) {
      cell.classList.add("fxi-code-selected");
      cell.setAttribute("aria-selected", "true");
    }
  }

  private selectedRows(): [Side, number][] {
    const { shown, before } = this.selected;
    const rows = (side: Side, names: string[]): [Side, number][] =>
      names.flatMap((name) =>
        (this.rowsOfNodes[side].get(name) ?? []).map((row): [Side, number] => [side, row]),
      );
    return [...rows("after", shown), ...rows("before", before)];
  }

  private bringSelectedIntoView(): void {
    if (this.isOpen) {
      const first = this.selectedRows()[0];
      if (first) this.uncover(first[1]);
    }
    this.mark();
    const cell = this.marked[0];
    // Who works in the code has the line before the eyes.
    if (!this.isOpen || !cell) return;
    this.scrollTo(cell);
    if (!focusedIn(this.grid)) this.setCurrent(cell);
    // What lies between may have had another height as long as it was not laid out.
    requestAnimationFrame(() => this.marked[0] === cell && this.scrollTo(cell));
  }

  /** Shows a row that is folded, and a few around it. */
  private uncover(row: number): void {
    const fold = this.stretches.find(({ start, stop, isOpen }) => !isOpen && start <= row && row < stop);
    if (fold) this.unfold(fold, row - AROUND, row + AROUND);
  }

  /** Scrolls the code, and never the notebook around it. */
  private scrollTo(cell: HTMLElement): void {
    const [outer, inner] = [this.grid.getBoundingClientRect(), cell.getBoundingClientRect()];
    if (inner.top >= outer.top && inner.bottom <= outer.bottom) return;
    this.grid.scrollTop += inner.top - outer.top - Math.max(0, (outer.height - inner.height) / 3);
  }

  private cellOf(row: number, side: Side): HTMLElement | null {
    const place = this.stretches.findIndex(({ start, stop }) => start <= row && row < stop);
    const stretch = this.stretches[place];
    if (!stretch?.isOpen) return null;
    const inside = row - stretch.start;
    const chunk = this.grid.children[place]?.children[Math.floor(inside / CHUNK)];
    return (
      chunk?.children[inside % CHUNK]?.querySelector<HTMLElement>(`.fxi-code-cell[data-side="${side}"]`) ??
      null
    );
  }

  // What a person does.

  private clicked(event: MouseEvent): void {
    const cell = (event.target as Element).closest<HTMLElement>(".fxi-code-cell");
    // Who marks text wants to copy it.
    if (!cell || window.getSelection()?.toString()) return;
    this.choose(cell);
  }

  private choose(cell: HTMLElement): void {
    const row = this.rows[Number(cell.dataset["row"])];
    const side = cell.dataset["side"] as Side;
    const node = row && this.nodesOf(row, side)[0];
    if (node !== undefined) this.actions.jump(node, side === "before");
  }

  private pressed(event: KeyboardEvent): void {
    const at = (event.target as Element).closest<HTMLElement>(STOPS);
    if (!at || event.altKey || event.ctrlKey || event.metaKey) return;
    if ((event.key === "Enter" || event.key === " ") && at.classList.contains("fxi-code-cell")) {
      event.preventDefault();
      return this.choose(at);
    }
    const next = this.neighbour(at, event.key);
    if (!next) return;
    event.preventDefault();
    next.focus({ preventScroll: true });
    this.scrollTo(next);
  }

  private neighbour(at: HTMLElement, key: string): HTMLElement | null {
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const beside = key === "ArrowLeft" ? at.previousElementSibling : at.nextElementSibling;
      return beside instanceof HTMLElement && beside.tabIndex === -1 ? beside : null;
    }
    const steps = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: PAGE,
      PageUp: -PAGE,
      Home: -Infinity,
      End: Infinity,
    }[key];
    if (steps === undefined) return null;
    const rows = [...this.grid.querySelectorAll<HTMLElement>(".fxi-code-row")];
    const here = rows.indexOf(at.closest<HTMLElement>(".fxi-code-row")!);
    const row = rows[clamp(here + steps, 0, rows.length - 1)]!;
    const side = at.dataset["side"] ?? "after";
    return row.querySelector<HTMLElement>(`[data-side="${side}"]`) ?? row.querySelector<HTMLElement>(STOPS);
  }

  private focused(event: FocusEvent): void {
    this.setCurrent((event.target as Element).closest<HTMLElement>(STOPS));
  }

  private setCurrent(cell: HTMLElement | null): void {
    if (!cell) return;
    this.current?.setAttribute("tabindex", "-1");
    cell.setAttribute("tabindex", "0");
    this.current = cell;
  }

  private chooseLayout(unified: boolean): void {
    this.wantsUnified = unified;
    [...this.layout.children].forEach((button, i) =>
      button.setAttribute("aria-pressed", String(unified === (i === 1))),
    );
    this.render();
  }

  private readonly measure = debounce(() => {
    const width = this.element.clientWidth;
    const isWide = width >= WIDE;
    if (width === 0 || isWide === this.isWide) return;
    this.isWide = isWide;
    this.render();
  }, 50);
}
