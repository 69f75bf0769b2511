/** The kernel of a widget: traits that carry what it says, and messages that it answers. */

import type { AnyModel } from "@anywidget/types";
import { objectWith } from "../../base/read_message";
import { Data } from "../graphs/data";
import { type Answer, type Kept, type Kernel, type KernelState, ShownError } from "./kernel";
import type { Asked, DataPart, ViewState } from "../../base/wire";

type Buffers = DataView<ArrayBuffer>[];
type Waiting = { resolve: (answer: Answer) => void; reject: (reason: Error) => void };
type Widget = AnyModel<Record<string, never>>;

const PARTS = [
  ...(["passes", "tables", "measured", "status", "stages"] as const),
  ...(["overlays", "view", "height", "panels"] as const),
] as const;

/** The viewer's name of a value -> the trait that carries it, which is private in Python. */
const traitOf = (name: string): string => (name === "height" ? name : `_shown_${name}`);

export class WidgetKernel implements Kernel {
  readonly isFixed = false;
  data = new Data();
  isLost = false;
  /** How many places show the widget: the kernel spares itself the work for one that is nowhere. */
  places = 0;
  private readonly name = Math.random().toString(36).slice(2);
  private readonly waiting = new Map<string, Waiting>();
  private requests = 0;
  private losses = 0;
  /** How many parts of the data have arrived, and when all of them are read. */
  private parts = 0;
  private reading: Promise<void> = Promise.resolve();

  constructor(private readonly widget: Widget) {
    const parts = widget.get("_shown_data") as unknown;
    for (const part of Array.isArray(parts) ? (parts as DataView<ArrayBuffer>[]) : []) this.read(part);
    widget.on("msg:custom", (content: unknown, buffers?: Buffers) => this.receive(content, buffers ?? []));
  }

  get state(): KernelState {
    const { widget } = this;
    return Object.fromEntries(PARTS.map((name) => [name, widget.get(traitOf(name))])) as never;
  }

  async ready(): Promise<void> {
    await this.reading;
    if (this.isComplete) return;
    // This page was opened when some of it had been sent already.
    await this.ask({ type: "all-data" });
    await this.reading;
  }

  private get isComplete(): boolean {
    const { alone, merged, preview } = this.state.stages;
    const last = Math.max(...Object.values(alone), ...Object.values(merged), preview?.graph ?? 0);
    return last < this.data.graphs.length;
  }

  follow(changed: (name: keyof KernelState, view?: Partial<ViewState>) => void): void {
    for (const name of PARTS)
      if (name !== "view") this.widget.on(`change:${traitOf(name)}`, () => changed(name));
    this.widget.on("msg:custom", (content: unknown) => {
      const look = objectWith(content, "type", "view");
      const view = look?.["type"] === "look" ? objectWith(look["view"]) : null;
      if (view) changed("view", view as Partial<ViewState>);
    });
  }

  keep<K extends Kept>(name: K, value: KernelState[K]): void {
    const trait = traitOf(name);
    if (JSON.stringify(this.widget.get(trait)) === JSON.stringify(value)) return;
    this.widget.set(trait, value as never);
    try {
      this.widget.save_changes();
    } catch {
      // There is no kernel any more that would want to know.
    }
  }

  ask(message: Asked): Promise<Answer> {
    const request = `${this.name}-${(this.requests += 1)}`;
    return new Promise((resolve, reject) => {
      this.waiting.set(request, { resolve, reject });
      try {
        this.widget.send({ ...message, request });
      } catch {
        // The notebook was closed, or its kernel is gone.
        this.lose();
      }
    });
  }

  /** Tells the kernel of a place that shows the widget; returns a function that tells of its end. */
  enter(): () => void {
    const name = `${this.name}-${(this.requests += 1)}`;
    const tell = (on: boolean): void => {
      this.places += on ? 1 : -1;
      try {
        this.widget.send({ type: "place", name, on } satisfies Asked);
      } catch {
        // There is no kernel, or the widget is closed.
      }
    };
    tell(true);
    return () => tell(false);
  }

  /** The kernel has stopped: nothing will come of what was asked, and whoever asked hears of it. */
  lose(): void {
    this.isLost = true;
    for (const { reject } of this.waiting.values()) reject(new ShownError());
    this.waiting.clear();
    const text = "What is shown can still be looked at. Run the cell again to switch passes or measure.";
    const error = { number: (this.losses -= 1), title: "The kernel has stopped", text };
    this.widget.set("_shown_status" as never, { busy: null, error } as never);
  }

  private receive(content: unknown, buffers: Buffers): void {
    const data = objectWith(content, "type", "number");
    if (data?.["type"] === "data" && buffers[0]) return this.take(Number(data["number"]), buffers[0]);
    const answer = objectWith(content, "type", "request");
    const waiting = this.waiting.get(String(answer?.["request"]));
    if (answer?.["type"] !== "answer" || !waiting) return;
    this.waiting.delete(String(answer["request"]));
    if (answer["failed"] === true) waiting.reject(new ShownError());
    else waiting.resolve({ value: answer["value"], buffers });
  }

  private take(number: number, part: DataView<ArrayBuffer>): void {
    if (number === 0) this.parts = 0;
    // It came with the state of the widget already, or one before it did not come.
    if (number !== this.parts) return;
    // In place: kept where a notebook saves it, and not sent back.
    const parts = this.widget.get("_shown_data") as unknown as unknown[];
    if (number === 0) parts.length = 0;
    parts.push(part);
    this.read(part);
  }

  private read(part: DataView<ArrayBuffer>): void {
    this.parts += 1;
    this.reading = this.reading.then(async () => {
      const read = JSON.parse(await inflated(part)) as DataPart;
      // Only the first part has these: everything is written anew.
      if (read.metrics) this.data = new Data();
      this.data.add(read);
    });
  }
}

async function inflated(part: DataView<ArrayBuffer>): Promise<string> {
  const stream = new Blob([part]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
