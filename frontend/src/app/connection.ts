/** The connection to the kernel: which messages are unanswered, and whether anybody is there. */

import type { Model, State, ToApp, ToViewer } from "../base/protocol";

const PATIENCE_MS = 700;

export interface ConnectionEvents {
  /** Something has not been answered for a while. */
  waiting(): void;
  sent(): void;
  /** A message was answered; whether others are not yet. */
  done(areMore: boolean): void;
  /** The kernel that this page belongs to is gone; nothing will come of what was asked. */
  lost(): void;
  received(message: ToApp, buffers: DataView<ArrayBuffer>[]): void;
}

export class Connection {
  private readonly listeners: [string, (...values: never[]) => void][] = [];
  private readonly name = Math.random().toString(36).slice(2);
  private patience: ReturnType<typeof setTimeout> | undefined;
  private unanswered = 0;
  private requests = 0;

  constructor(
    private readonly model: Model,
    private readonly events: ConnectionEvents,
  ) {
    this.on("message", (message: ToApp, buffers: DataView<ArrayBuffer>[]) => {
      if (message.type === "done") this.done();
      else events.received(message, buffers);
    });
  }

  dispose(): void {
    for (const [event, callback] of this.listeners) this.model.off(event, callback);
    clearTimeout(this.patience);
  }

  /** Calls back with each part of the state, and again whenever it changes. */
  follow(show: { [K in keyof State]: (value: State[K]) => void }): void {
    for (const name of Object.keys(show) as (keyof State)[]) {
      const update = (): void => (show[name] as (value: State[typeof name]) => void)(this.model.get(name));
      update();
      this.on(`change:${name}`, update);
    }
  }

  send(message: ToViewer): void {
    this.patience ??= setTimeout(() => this.events.waiting(), PATIENCE_MS);
    this.unanswered += 1;
    this.events.sent();
    try {
      this.model.send(message);
    } catch {
      this.settle(0);
      this.events.lost();
    }
  }

  /** Returns a name for a request, by which its answer is known. */
  request(): string {
    return `${this.name}-${(this.requests += 1)}`;
  }

  /** Whether an answer is to a request of this page: others may show the same session. */
  isOwn(request: string): boolean {
    return request.startsWith(this.name);
  }

  private on(event: string, callback: (...values: never[]) => void): void {
    this.model.on(event, callback);
    this.listeners.push([event, callback]);
  }

  private done(): void {
    this.settle(Math.max(0, this.unanswered - 1));
    this.events.done(this.unanswered > 0);
  }

  /** Goes on waiting as long as anything is unanswered, whatever else the page has answered by itself. */
  private settle(unanswered: number): void {
    this.unanswered = unanswered;
    if (unanswered > 0) return;
    clearTimeout(this.patience);
    this.patience = undefined;
  }
}
