/** The state of an inspector, kept in the page as a widget's model keeps it. */

import type { Model } from "../base/model";
import type { State, ToApp, ToViewer } from "../base/protocol";

type Listener = (...values: never[]) => void;

export abstract class PageModel implements Model {
  protected abstract readonly state: State;
  private readonly listeners = new Map<string, Set<Listener>>();

  abstract send(message: ToViewer): void;

  get<K extends keyof State>(name: K): State[K] {
    return this.state[name];
  }

  set<K extends keyof State>(name: K, value: State[K]): void {
    this.state[name] = value;
    this.emit(`change:${name}`);
  }

  on(event: string, callback: Listener): void {
    if (!this.listeners.has(event)) this.listeners.set(event, new Set());
    this.listeners.get(event)!.add(callback);
  }

  off(event: string, callback: Listener): void {
    this.listeners.get(event)?.delete(callback);
  }

  protected tell(message: ToApp, buffers: DataView<ArrayBuffer>[] = []): void {
    this.emit("message", message, buffers);
  }

  private emit(event: string, ...values: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? [])
      (listener as (...values: unknown[]) => void)(...values);
  }
}
