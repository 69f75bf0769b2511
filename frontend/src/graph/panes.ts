/** The graph; and beside it, where two stages are shown side by side, the graph of the stage before. */

import { focusedIn, h } from "../base/dom";
import { GraphView } from "./graph_view";
import type { Painted } from "./overlays/overlay";
import type { Box, Details, NodesFound, Picture, Stages } from "../base/protocol";
import { splitter } from "../base/splitter";
import { titleOfStage } from "../panels/stage_bar";
import { clamp } from "./viewport";

export interface PaneActions {
  select(box: Box, id: string, before: boolean): void;
  clear(): void;
  open(path: string): void;
  close(path: string): void;
  jump(node: string, before: boolean): void;
  search(): void;
  back(): void;
  /** The two graphs were linked, or let go. */
  linked(on: boolean): void;
  /** The graph that tools are for shows another part, or is another one. */
  moved(): void;
}

/** What is pointed at: a box of one side, and the boxes of the other that stand for it. */
export type Pointed = Pick<Details, "box" | "before" | "counterparts">;

const SMALLEST = 150;
const KEYS = "Arrow keys follow edges, Enter opens and closes a group, f fits, slash searches";

/** A graph with words above that say which stage it is, which are hidden where there is no other. */
class Pane {
  readonly title = h("h3", {});
  readonly note = h("span", { class: "fxi-pane-note", role: "status" });
  readonly head = h("div", { class: "fxi-pane-head", hidden: true }, this.title, this.note);
  readonly element: HTMLElement;

  constructor(
    readonly graph: GraphView,
    name: string,
  ) {
    this.element = h("div", { class: `fxi-pane fxi-pane-${name}`, role: "group" }, this.head, graph.element);
    this.call(null);
  }

  /** Says what here stands for what is selected on the other side. */
  say(words: string): void {
    if (this.note.textContent === words) return;
    this.note.textContent = words;
    this.note.title = words;
  }

  /** Says which stage it shows; null if there is no need to. */
  call(stage: string | null): void {
    this.head.hidden = stage === null;
    this.title.textContent = stage ?? "";
    this.title.title = stage ?? "";
    this.element.setAttribute("aria-label", stage ?? "Graph");
    this.graph.setLabel(
      stage === null
        ? `Graph of the model. ${KEYS}.`
        : `Graph of the stage ${stage}. ${KEYS}, o goes to the other graph, l links the two.`,
    );
  }
}

export class Panes {
  readonly element = h("div", { class: "fxi-panes" });
  private readonly shown: Pane;
  private before: Pane | null = null;
  private stages: Stages | null = null;
  /** Whether the two have not shown these stages together yet. */
  private isNew = true;
  /** What was brought into sight last, as one text. */
  private pointed = "";
  /** Whether they move and zoom together, so that the same part of the model is in both. */
  private isLinked = true;
  /** The one that had the focus last. */
  private last: GraphView | null = null;

  constructor(private readonly actions: PaneActions) {
    this.shown = new Pane(this.graphOf(false), "shown");
    this.element.append(this.shown.element);
  }

  /** The graph that is always there. */
  get graph(): GraphView {
    return this.shown.graph;
  }

  /** The graph that tools are for: of two, the one that had the focus last. */
  get active(): GraphView {
    return this.last ?? this.graph;
  }

  /** Shows the next pictures as if they were the first. */
  startOver(): void {
    for (const pane of [this.shown, this.before]) pane?.graph.camera.startOver();
  }

  dispose(): void {
    this.graph.dispose();
    this.before?.graph.dispose();
  }

  /** Shows the graph of the stage before, or takes it away. */
  showBefore(picture: Picture | null): void {
    if (!picture) return this.remove();
    this.before ??= this.add();
    this.name();
    this.before.graph.show(picture);
    this.graph.camera.measure();
    this.before.graph.camera.measure();
    if (this.isNew || this.isLinked) this.align();
    this.isNew = false;
    this.pointed = "";
  }

  /** Lets the graph beside show what the other shows, and what stands there for what is selected. */
  private align(): void {
    this.before?.graph.lookLike(this.graph);
    for (const { graph } of this.before ? [this.shown, this.before] : []) graph.bringSelected();
  }

  /** Says which stages are shown. */
  setStages(stages: Stages): void {
    this.isNew ||= stages.shown !== this.stages?.shown || stages.before !== this.stages?.before;
    this.stages = stages;
    this.name();
  }

  /** Shows what is selected on one side, and what stands for it on the other. */
  setSelected({ box, before, counterparts }: Pointed): void {
    const here = before ? this.before : this.shown;
    const there = before ? this.shown : this.before;
    const boxes = counterparts ?? [];
    const pointed = JSON.stringify([box, before, boxes]);
    here?.graph.setSelected(box ? [box] : []);
    there?.graph.highlights.setSelected(boxes);
    if (pointed !== this.pointed) there?.graph.camera.bring(boxes);
    this.pointed = pointed;
    here?.say("");
    there?.say(box ? counterpartWords(boxes.flatMap((id) => there.graph.labelOf(id) ?? [])) : "");
  }

  /** Lights up what is found, in the graph and in the one beside it. */
  setFound(found: NodesFound | null): void {
    this.graph.setFound(found && found.boxes);
    this.before?.graph.setFound(found && found.before);
  }

  /** Colours the graph, and the one beside it. */
  setPaint([shown, before]: Painted[]): void {
    this.graph.highlights.setPaint(shown ?? null);
    this.before?.graph.highlights.setPaint(before ?? null);
  }

  focus(boxes: string[], gently: boolean, before: boolean): void {
    (before ? this.before : this.shown)?.graph.camera.focus(boxes, gently);
    (before ? this.shown : this.before)?.graph.bringSelected();
  }

  /** Lets the graphs move together, or each by itself; at first one of them goes where the other is. */
  setLinked(on: boolean, leader = this.graph): void {
    this.isLinked = on;
    leader.announce(on ? "Both graphs move together" : "Each graph moves by itself");
    if (on) this.besides(leader)?.lookLike(leader, true);
    this.actions.linked(on);
  }

  private besides(graph: GraphView): GraphView | undefined {
    return (graph === this.graph ? this.before : this.shown)?.graph;
  }

  private graphOf(before: boolean): GraphView {
    const other = (): GraphView | undefined => this.besides(graph);
    const graph = new GraphView({
      select: (box, id) => this.actions.select(box, id, before),
      clear: () => {
        this.setSelected({ box: null });
        this.actions.clear();
      },
      // The same group opens and closes on the other side, and should stay where it is there as well.
      open: (path, id) => {
        other()?.camera.anchorAt(id);
        this.actions.open(path);
      },
      close: (path, id) => {
        other()?.camera.anchorAt(id);
        this.actions.close(path);
      },
      jump: (node) => this.actions.jump(node, before),
      search: () => this.actions.search(),
      back: () => this.actions.back(),
      cross: () => other()?.element.focus({ preventScroll: true }),
      link: () => other() && this.setLinked(!this.isLinked, graph),
      moved: (gliding) => this.isLinked && other()?.lookLike(graph, gliding),
      fitted: () => this.isLinked && other()?.camera.showAll(),
      measured: () => this.isLinked && this.align(),
      changed: () => {
        if (focusedIn(graph.element) === graph.element) this.last = graph;
        this.actions.moved();
      },
    });
    return graph;
  }

  private add(): Pane {
    const pane = new Pane(this.graphOf(true), "before");
    const [style, room] = [this.element.style, this.element];
    const border = (vertical: boolean): HTMLElement =>
      splitter({
        label: "Border between the two stages",
        vertical,
        grows: true,
        size: () => (vertical ? pane.element.offsetWidth : pane.element.offsetHeight),
        resize: (to) => {
          const all = vertical ? room.clientWidth : room.clientHeight;
          style.setProperty("--before", `${((100 * clamp(to, SMALLEST, all - SMALLEST)) / all).toFixed(2)}%`);
        },
      });
    this.element.prepend(pane.element, border(true), border(false));
    return pane;
  }

  private remove(): void {
    if (!this.before) return;
    const hadFocus = focusedIn(this.element) !== null && focusedIn(this.shown.element) === null;
    this.before.graph.dispose();
    this.before = null;
    this.last = null;
    this.isNew = true;
    this.element.replaceChildren(this.shown.element);
    this.name();
    if (hadFocus) this.graph.element.focus({ preventScroll: true });
  }

  /** What the stages are called. */
  get names(): { shown: string; before: string } {
    const { names, shown, before } = this.stages ?? {};
    return { shown: titleOfStage(names, shown), before: titleOfStage(names, before ?? 0) };
  }

  private name(): void {
    const { names, before } = this;
    this.shown.call(before && this.stages ? names.shown : null);
    before?.call(names.before);
  }
}

function counterpartWords(labels: string[]): string {
  const [first, second, ...more] = labels;
  if (first === undefined) return "No counterpart";
  if (second === undefined) return `Counterpart: ${first}`;
  return `Counterparts: ${first}, ${second}${more.length ? ` and ${more.length} more` : ""}`;
}
