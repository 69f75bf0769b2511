/** A kernel that answers from golden vectors, late or never if that is wished for; and layouts without Graphviz. */

import { type Focus, PANELS_AT_FIRST, type Picture, type State } from "../src/base/protocol";
import { VIEW_AT_FIRST } from "../src/viewer/view_link";
import { Data } from "../src/viewer/graphs/data";
import type { Layouts } from "../src/viewer/drawing/layout";
import {
  ShownError,
  type Answer,
  type Kept,
  type Kernel,
  type KernelState,
} from "../src/viewer/kernels/kernel";
import { Viewer } from "../src/viewer/viewer";
import { dataOf, passesOf, vectorsOf, type Step, type Vectors } from "./golden";
import { NODE_VALUE, partOf } from "./node_value";
import type {
  Asked,
  Extra,
  OverlayData,
  Pass,
  StagesKnown,
  ViewState,
  WrittenValues,
} from "../src/base/wire";

type Changed = (name: keyof KernelState, view?: Partial<ViewState>) => void;
type Waiting = { message: Asked; resolve: (answer: Answer) => void; reject: (error: Error) => void };

const NO_TABLE = { columns: [], rows: [], total: 0 };

export class FakeKernel implements Kernel {
  isFixed = false;
  data: Data;
  readonly state: KernelState;
  readonly asked: Asked[] = [];
  /** Types of messages that are not answered until `release`. */
  readonly held = new Set<Asked["type"]>();
  /** Types of messages that are answered with an error. */
  readonly failing = new Set<Asked["type"]>();
  /** Nobody is there to ask. */
  isGone = false;
  /** What a report has of the values of nodes. */
  values: WrittenValues | null = null;
  /** What is answered to who asks for the values of a node. */
  value: object = { state: "ready", value: NODE_VALUE, part: partOf(0) };
  private readonly steps: Step[];
  private readonly everything: StagesKnown;
  private readonly passes: Pass[];
  private waiting: Waiting[] = [];
  private readonly listeners: Changed[] = [];
  /** Values of overlays that have not been asked for. */
  private readonly overlays: OverlayData[];
  /** Parts of a large graph that have not been asked for. */
  /** The keys of the passes that have not been asked for their candidates. */
  private looking: string[] = [];
  private on = 0;
  private rest: Step[] = [];

  /** `on` is how many passes are on. Of a graph that arrives in parts, the first is there. */
  constructor(
    vectors: Vectors = vectorsOf("conv"),
    { on = 0, inParts = false, view = {} as Partial<ViewState> } = {},
  ) {
    this.steps = vectors.steps;
    this.everything = vectors.steps.at(-1)!.stages;
    this.passes = passesOf(vectors);
    if (inParts) {
      const [first, ...others] = vectors.steps;
      this.data = new Data();
      this.data.add(first!.part);
      this.rest = others.filter((step) => step.do.startsWith("rest"));
    } else this.data = dataOf(vectors);
    this.overlays = this.data.overlays.splice(0);
    this.state = {
      passes: { passes: [], canUndo: false, canRedo: false },
      tables: {
        outputs: { state: "none", text: "", table: null },
        nodes: { text: "", table: NO_TABLE },
      },
      measured: [],
      status: { busy: null, error: null },
      stages: {
        names: [],
        changes: [],
        version: 0,
        alone: {},
        merged: {},
        pairs: {},
        codes: {},
        codeDifferences: {},
        preview: null,
      },
      overlays: this.overlays.map(({ name, title }) => ({ name, title })),
      view: { ...VIEW_AT_FIRST, ...view },
      height: 600,
      panels: PANELS_AT_FIRST,
    };
    this.become(on);
  }

  /** Lets passes be asked for their candidates, which they have not been so far. */
  forgetCandidates(): void {
    this.looking = this.passes.map(({ key }) => key);
    this.state.passes = { ...this.state.passes, passes: this.passesNow() };
  }

  async ready(): Promise<void> {}

  follow(changed: Changed): void {
    this.listeners.push(changed);
  }

  keep<K extends Kept>(name: K, value: KernelState[K]): void {
    if (JSON.stringify(this.state[name]) === JSON.stringify(value)) return;
    // As a widget's model: whoever follows it hears of what the page has set, too.
    this.put(name, value);
  }

  ask(message: Asked): Promise<Answer> {
    if (this.isGone) throw new Error("There is no kernel.");
    this.asked.push(message);
    return new Promise((resolve, reject) => {
      const waiting = { message, resolve, reject };
      if (this.held.has(message.type)) this.waiting.push(waiting);
      else this.answer(waiting);
    });
  }

  askedFor(type: Asked["type"]): Asked[] {
    return this.asked.filter((message) => message.type === type);
  }

  /** Answers what was held back. */
  release(): void {
    this.held.clear();
    const { waiting } = this;
    this.waiting = [];
    for (const one of waiting) this.answer(one);
  }

  /** Switches passes, as a session does: the last stage is shown, two stages stay side by side. */
  switchTo(on: number): void {
    this.become(on);
    const { view } = this.state;
    const beside = view.beside && on > 0;
    const compared = typeof view.compared === "number" && view.compared >= on ? "below" : view.compared;
    this.tell("passes");
    const between = view.between.filter((stage) => beside && stage < on);
    this.put("view", { ...view, stage: null, compared: beside ? compared : "", beside, between });
    this.tell("stages");
    this.tell("overlays");
  }

  /** Tries out the pass whose name begins so, or none any more. */
  preview(name: string | null): void {
    const step = this.steps.find((known) => name !== null && known.do.startsWith(`preview ${name}`));
    this.put("stages", { ...this.state.stages, preview: step?.stages.preview ?? null });
  }

  /** What a script sets; the kernel may not have heard of the page's last view. */
  look(changes: Partial<ViewState>, known = this.state.view): void {
    this.state.view = { ...known, ...changes };
    for (const changed of this.listeners) changed("view", changes);
  }

  put<K extends keyof KernelState>(name: K, value: KernelState[K]): void {
    this.state[name] = value;
    this.tell(name);
  }

  tell(name: keyof KernelState): void {
    for (const changed of this.listeners) changed(name);
  }

  /** Another object with everything in it, as after many changes of the session. */
  writeAnew(vectors: Vectors): void {
    this.data = dataOf(vectors);
  }

  private become(on: number): void {
    const { names, changes, alone } = this.everything;
    const { version } = this.state.stages;
    this.state.stages = {
      names: names.slice(0, on + 1),
      changes: changes.slice(0, on + 1),
      version: version + 1,
      alone: { [on]: alone[on]! },
      merged: {},
      pairs: {},
      codes: {},
      codeDifferences: {},
      preview: null,
    };
    this.state.passes = {
      passes: this.passesNow(on),
      canUndo: false,
      canRedo: false,
    };
  }

  private passesNow(on = this.on): Pass[] {
    this.on = on;
    return this.passes.map((pass, i) => ({
      ...pass,
      on: i < on,
      stage: i < on ? i + 1 : null,
      isLooking: this.looking.includes(pass.key),
    }));
  }

  private answer({ message, resolve, reject }: Waiting): void {
    if (this.failing.has(message.type)) return reject(new ShownError());
    resolve({ value: this.valueFor(message), buffers: [] });
  }

  private valueFor(message: Asked): unknown {
    switch (message.type) {
      case "graph": {
        const { version, stage, before, beside } = message;
        if (version !== this.state.stages.version) return null;
        const { alone, merged, pairs } = this.everything;
        const known = { ...this.state.stages };
        known.alone = { ...known.alone, [stage]: alone[stage]! };
        if (before !== null && beside) {
          known.alone[before] = alone[before]!;
          known.pairs = { ...known.pairs, [`${stage}/${before}`]: pairs[`${stage}/${before}`]! };
        } else if (before !== null)
          known.merged = { ...known.merged, [`${stage}/${before}`]: merged[`${stage}/${before}`]! };
        this.put("stages", known);
        return null;
      }
      case "candidates": {
        const left = this.looking.pop();
        this.put("passes", { ...this.state.passes, passes: this.passesNow() });
        return left === undefined || this.looking.length === 0;
      }
      case "code": {
        const { version, stage, before } = message;
        if (version !== this.state.stages.version) return null;
        const { codes, codeDifferences } = this.everything;
        const known = { ...this.state.stages, codes: { ...this.state.stages.codes } };
        for (const number of before === null ? [stage] : [stage, before])
          known.codes[number] = codes[number]!;
        if (before !== null)
          known.codeDifferences = {
            ...known.codeDifferences,
            [`${stage}/${before}`]: codeDifferences[`${stage}/${before}`]!,
          };
        this.put("stages", known);
        return null;
      }
      case "rest": {
        this.data.add(this.rest.shift()!.part);
        return this.rest.length === 0;
      }
      case "details":
        return {
          fields: [{ label: "FLOPs", value: "7", code: false }],
          contents: [],
          parameters: [],
        } satisfies Extra;
      case "overlay": {
        const measured = this.overlays.find(({ name }) => name === message.name)!;
        this.data.overlays.push({
          ...measured,
          graph: message.graph,
          values: this.data.graphs[message.graph]!.order.map((_, i) => i + 1),
        });
        return null;
      }
      case "value":
        return this.value;
      case "value-part":
        return { state: "ready", part: partOf(message.tensor, message.index[0]) };
      default:
        return null;
    }
  }
}

/** Layouts that put every box in the same place. */
export class FakeLayouts {
  readonly outlines: string[] = [];
  error: Error | null = null;

  async layOut(dot: string): Promise<string> {
    this.outlines.push(dot);
    if (this.error) throw this.error;
    const parts = [...dot.matchAll(/^(graph|"[^"]*"|"[^"]*" -> "[^"]*") \[id="([^"]*)"/gm)].map(
      ([, what, id]) => {
        if (what!.includes("->"))
          return `<g id="${id}" class="edge"><path d="M0,0C1,1 2,2 3,3"/><polygon points="0,0 1,1 1,0"/></g>`;
        const kind = what === "graph" ? "cluster" : "node";
        return `<g id="${id}" class="${kind}"><polygon points="0,0 9,0 9,9 0,9"/></g>`;
      },
    );
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><g class="graph" transform="translate(4 6)">${parts.join("")}</g></svg>`;
  }
}

/** What the panels hear: boxes to bring into sight, and that a message was dealt with, with the answer. */
export type Told = ({ type: "focus" } & Focus) | { type: "done"; value: unknown };

/** A viewer, and what it has told the panels. */
export class Page {
  readonly viewer: Viewer;
  readonly told: Told[] = [];

  constructor(
    readonly kernel: Kernel,
    readonly layouts = new FakeLayouts(),
  ) {
    this.viewer = new Viewer(kernel, layouts as unknown as Layouts);
    this.viewer.on("focus", (focus: Focus) => this.told.push({ type: "focus", ...focus }));
  }

  static async of(kernel: Kernel): Promise<Page> {
    const page = new Page(kernel);
    await settled();
    return page;
  }

  get<K extends keyof State>(name: K): State[K] {
    return this.viewer.get(name);
  }

  /** Sends messages one right after the other, and returns what is told until all has settled. */
  async sends(...messages: Parameters<Viewer["send"]>[0][]): Promise<Told[]> {
    const first = this.told.length;
    for (const message of messages)
      void this.viewer.send(message).then((value) => this.told.push({ type: "done", value: value ?? null }));
    await settled();
    return this.told.slice(first);
  }

  /** Names of the groups that are open and visible. */
  get opened(): string[] {
    return Object.values(this.get("picture").boxes)
      .filter(({ kind }) => kind === "cluster")
      .map(({ path }) => path)
      .sort();
  }

  /** The picture in a pane. */
  picture(pane: number): Picture {
    return pane ? this.get("beside")[pane - 1]! : this.get("picture");
  }

  /** Id of the box that draws a node alone. */
  boxOf(name: string, pane = 0): string | undefined {
    const picture = this.picture(pane);
    return Object.keys(picture.boxes).find(
      (id) => picture.boxes[id]!.node === name && picture.boxes[id]!.kind !== "chip",
    );
  }

  groupBox(path: string): string | undefined {
    const { boxes } = this.get("picture");
    return Object.keys(boxes).find((id) => boxes[id]!.path === path && boxes[id]!.node === null);
  }

  get error(): string {
    const { error } = this.get("status");
    return error ? `${error.title}: ${error.text}` : "";
  }
}

/** Waits until nothing is to be done any more. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 4; i += 1) await new Promise((resolve) => setTimeout(resolve, 0));
}
