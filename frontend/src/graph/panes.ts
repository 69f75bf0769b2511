/** The graph; and beside it, where several stages are shown side by side, the graphs of the others. */

import { choice, fill, focusedIn, h, icon, iconButton } from "../base/dom";
import { numbered } from "../base/format";
import {
  NO_STAGES,
  type Box,
  type Details,
  type NodesFound,
  type Picture,
  type Stages,
} from "../base/protocol";
import { titleOfStage } from "../base/stages";
import { GraphView } from "./graph_view";
import type { Painted } from "./overlays/overlay";

/** Panes are known by their numbers: 0 is that of the stage that is shown, and others follow from the left. */
export interface PaneActions {
  select(box: Box, id: string, pane: number): void;
  clear(): void;
  open(path: string): void;
  close(path: string): void;
  jump(node: string, pane: number): void;
  search(): void;
  keys(): void;
  back(): void;
  /** The graphs were linked, or let go. */
  linked(on: boolean): void;
  /** Other stages are to be shown side by side. */
  show(stages: number[]): void;
  /** The graph that tools are for shows another part, or is another one. */
  moved(): void;
}

/** What is pointed at: a box of one pane, and the boxes of the others that stand for it. */
export type Pointed = Pick<Details, "box" | "pane" | "counterparts">;

const KEYS = "Arrow keys follow edges, Enter opens and closes a group, f fits, slash searches";

/** A graph with words above that say which stage it is, which are hidden where there is no other. */
class Pane {
  readonly title = h("h3.fxi-cut");
  readonly note = h("span.fxi-pane-note.fxi-grow.fxi-cut.fxi-small.fxi-muted", { role: "status" });
  private readonly choice: HTMLSelectElement;
  private readonly head: HTMLElement;
  readonly element: HTMLElement;

  /** `choose` is called with the number of another stage, null for none. */
  constructor(
    readonly graph: GraphView,
    choose: (stage: number | null) => void,
  ) {
    this.choice = choice((stage) => choose(Number(stage)), [], { title: "Show another stage in this pane" });
    this.head = h("div.fxi-pane-head.fxi-strip", { hidden: true }, [
      h("div.fxi-pane-stage.fxi-row", this.title, icon("chevron"), this.choice),
      this.note,
      iconButton("close", "Close this pane", () => choose(null)),
    ]);
    this.element = h("div.fxi-pane.fxi-column", { role: "group" }, this.head, graph.element);
    this.call(null);
  }

  /** Says what here stands for what is selected in another pane. */
  say(words: string): void {
    if (this.note.textContent === words) return;
    this.note.textContent = words;
    this.note.title = words;
  }

  /** Says which stage it shows, and which it could; null if there is no need to. */
  call(stage: number | null, { names, row, addable }: Stages = NO_STAGES): void {
    const title = stage === null ? "" : titleOfStage(names, stage);
    this.head.hidden = stage === null;
    this.title.textContent = title;
    this.title.title = title;
    this.element.setAttribute("aria-label", title || "Graph");
    this.choice.setAttribute("aria-label", `Stage in this pane: ${title}`);
    fill(this.choice, [
      names.map((name, i) =>
        i === stage || (stage !== null && (addable.includes(i) || row.length > 5) && !row.includes(i))
          ? h("option", { value: i, selected: i === stage }, numbered(i, name))
          : null,
      ),
    ]);
    this.graph.setLabel(
      stage === null
        ? `Graph of the model. ${KEYS}.`
        : `Graph of the stage ${title}. ${KEYS}, o goes to the next graph, l links all of them.`,
    );
  }
}

export class Panes {
  readonly element = h("div.fxi-panes.fxi-grow");
  /** By their numbers. */
  private readonly list: Pane[] = [];
  private stages = NO_STAGES;
  /** Whether these stages have not been shown together yet. */
  private isNew = true;
  /** What was brought into sight last, as one text, and in which pane it is. */
  private pointed = "";
  private leader = 0;
  /** Whether they move and zoom together, so that the same part of the model is in all. */
  private isLinked = true;
  /** The one that had the focus last. */
  private last: GraphView | null = null;

  constructor(private readonly actions: PaneActions) {
    this.add();
  }

  /** The graph that is always there. */
  get graph(): GraphView {
    return this.list[0]!.graph;
  }

  /** The graph that tools are for: of several, the one that had the focus last. */
  get active(): GraphView {
    return this.last ?? this.graph;
  }

  /** Shows the next pictures as if they were the first. */
  startOver(): void {
    for (const { graph } of this.list) graph.camera.startOver();
  }

  dispose(): void {
    for (const { graph } of this.list) graph.dispose();
  }

  /** Shows the graphs beside the one that is always there, from left to right. */
  showBeside(pictures: Picture[]): void {
    const count = this.list.length;
    const focused = focusedIn(this.element);
    while (this.list.length > 1 + pictures.length) this.remove();
    while (this.list.length < 1 + pictures.length) this.add();
    this.name();
    if (count !== this.list.length) {
      this.arrange();
      this.isNew = true;
      if (focused) (focused.isConnected ? focused : this.graph.element).focus({ preventScroll: true });
    }
    if (pictures.length === 0) return;
    pictures.forEach((picture, i) => this.list[i + 1]!.graph.show(picture));
    for (const { graph } of this.list) graph.camera.measure();
    if (this.isNew || this.isLinked) this.align();
    this.isNew = false;
    this.pointed = "";
  }

  /** Lets the other graphs show what the one with the selection shows, and what stands there for what is selected. */
  private align(): void {
    if (this.list.length === 1) return;
    const leader = (this.list[this.leader] ?? this.list[0]!).graph;
    leader.bringSelected();
    this.follow(leader);
    this.bringOthers(leader);
  }

  /** Brings into sight what stands for what is selected; together, it stands at the same height if it can. */
  private bringOthers(leader: GraphView): void {
    for (const graph of this.others(leader)) graph.bringSelected(!this.isLinked);
  }

  setStages(stages: Stages): void {
    this.isNew ||= stages.row.join() !== this.stages.row.join();
    this.stages = stages;
    this.name();
  }

  /** Shows what is selected in one pane, and what stands for it in the others. */
  setSelected({ box, pane = 0, counterparts = [] }: Pointed): void {
    const leader = this.list[pane]?.graph;
    const pointed = JSON.stringify([box, pane, counterparts]);
    const isOther = pointed !== this.pointed;
    [this.pointed, this.leader] = [pointed, pane];
    leader?.setSelected(box ? [box] : []);
    this.list.forEach((other, i) => {
      const { graph } = other;
      const boxes = counterparts[i] ?? [];
      if (graph !== leader) graph.highlights.setSelected(boxes);
      other.say(
        box && graph !== leader ? counterpartWords(boxes.flatMap((id) => graph.labelOf(id) ?? [])) : "",
      );
    });
    if (!box || !leader || !isOther) return;
    if (this.isLinked) this.follow(leader, true);
    this.bringOthers(leader);
  }

  setFound(found: NodesFound | null): void {
    this.list.forEach(({ graph }, i) => graph.highlights.setFound(found && (found.boxes[i] ?? {})));
  }

  setPaint(painted: Painted[]): void {
    this.list.forEach(({ graph }, i) => graph.highlights.setPaint(painted[i] ?? null));
  }

  focus(boxes: string[], gently: boolean, pane: number): void {
    const graph = this.list[pane]?.graph;
    if (!graph) return;
    graph.camera.focus(boxes, gently);
    this.bringOthers(graph);
  }

  /** Lets the graphs move together, or each by itself; at first all go where one is. */
  setLinked(on: boolean, leader = this.graph): void {
    this.isLinked = on;
    leader.announce(on ? "All graphs move together" : "Each graph moves by itself");
    if (on) this.follow(leader, true);
    this.actions.linked(on);
  }

  /** Lets all other graphs show what one shows. */
  private follow(leader: GraphView, gliding = false): void {
    for (const graph of this.others(leader)) graph.lookLike(leader, gliding);
  }

  private others(graph: GraphView): GraphView[] {
    return this.list.map((pane) => pane.graph).filter((other) => other !== graph);
  }

  private graphOf(): GraphView {
    const number = (): number => this.list.findIndex((pane) => pane.graph === graph);
    /** The same group opens and closes in all graphs, and should stay where it is in each. */
    const hold = (id: string): void => this.others(graph).forEach(({ camera }) => camera.anchorAt(id));
    const graph = new GraphView({
      ...this.actions,
      select: (box, id) => this.actions.select(box, id, number()),
      clear: () => {
        this.setSelected({ box: null });
        this.actions.clear();
      },
      open: (path, id) => {
        hold(id);
        this.actions.open(path);
      },
      close: (path, id) => {
        hold(id);
        this.actions.close(path);
      },
      jump: (node) => this.actions.jump(node, number()),
      cross: () => this.list[(number() + 1) % this.list.length]!.graph.element.focus({ preventScroll: true }),
      link: () => this.list.length > 1 && this.setLinked(!this.isLinked, graph),
      moved: (gliding) => this.isLinked && this.follow(graph, gliding),
      fitted: () => this.isLinked && this.others(graph).forEach(({ camera }) => camera.showAll()),
      measured: () => this.isLinked && this.align(),
      changed: () => {
        if (focusedIn(graph.element) === graph.element) this.last = graph;
        this.actions.moved();
      },
    });
    return graph;
  }

  private add(): void {
    const number = (): number => this.list.indexOf(pane);
    const pane = new Pane(this.graphOf(), (stage) => {
      const rest = this.stages.row.filter((_, place) => place !== (number() || this.list.length) - 1);
      this.actions.show(stage === null ? rest : [...rest, stage]);
    });
    this.list.push(pane);
    this.arrange();
  }

  private remove(): void {
    this.list.pop()!.graph.dispose();
    this.last = null;
  }

  private get inOrder(): Pane[] {
    return [...this.list.slice(1), this.list[0]!];
  }

  /** Puts the panes into their order. */
  private arrange(): void {
    this.element.replaceChildren(...this.inOrder.map(({ element }) => element));
  }

  /** What the stages are called, from left to right. */
  get names(): string[] {
    return this.stages.row.map((stage) => titleOfStage(this.stages.names, stage));
  }

  private name(): void {
    const { stages, inOrder } = this;
    const isRow = inOrder.length > 1 && stages.row.length === inOrder.length;
    inOrder.forEach((pane, i) => pane.call(isRow ? stages.row[i]! : null, stages));
  }
}

function counterpartWords(labels: string[]): string {
  const [first, second, ...more] = labels;
  if (first === undefined) return "No counterpart";
  if (second === undefined) return `Counterpart: ${first}`;
  return `Counterparts: ${first}, ${second}${more.length ? ` and ${more.length} more` : ""}`;
}
