/** The connection to the kernel: which messages are unanswered, and whether anybody is there. */

import type { Model, State, ToViewer } from "../base/protocol";

const PATIENCE_MS = 700;

export interface ConnectionEvents {
  /** Something has not been answered for a while. */
  waiting(): void;
  sent(): void;
  /** A message was answered; whether others are not yet. */
  done(areMore: boolean): void;
  /** The kernel that this page belongs to is gone; nothing will come of what was asked. */
  lost(): void;
}

export class Connection {
  private readonly listeners: [string, (...values: never[]) => void][] = [];
  private patience: ReturnType<typeof setTimeout> | undefined;
  private unanswered = 0;
  private isOver = false;

  constructor(
    private readonly model: Model,
    private readonly events: ConnectionEvents,
  ) {}

  dispose(): void {
    this.isOver = true;
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

  /** Sends a message and returns the answer, null if there is none. */
  async send<T>(message: ToViewer): Promise<T | null> {
    this.patience ??= setTimeout(() => this.events.waiting(), PATIENCE_MS);
    this.unanswered += 1;
    this.events.sent();
    let answer: unknown;
    try {
      answer = await this.model.send(message);
    } catch {
      this.settle(0);
      this.events.lost();
      return null;
    }
    if (this.isOver) return null;
    this.settle(Math.max(0, this.unanswered - 1));
    this.events.done(this.unanswered > 0);
    return (answer ?? null) as T | null;
  }

  on(event: string, callback: (...values: never[]) => void): void {
    this.model.on(event, callback);
    this.listeners.push([event, callback]);
  }

  /** Goes on waiting as long as anything is unanswered, whatever else the page has answered by itself. */
  private settle(unanswered: number): void {
    this.unanswered = unanswered;
    if (unanswered > 0) return;
    clearTimeout(this.patience);
    this.patience = undefined;
  }
}
