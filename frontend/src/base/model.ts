/** What the panels need: the state of the inspector, and messages. */

import type { State, ToViewer } from "./protocol";

export interface Model {
  get<K extends keyof State>(name: K): State[K];
  set<K extends keyof State>(name: K, value: State[K]): void;
  send(content: ToViewer): void;
  on(event: string, callback: (...values: never[]) => void): void;
  off(event: string, callback: (...values: never[]) => void): void;
}
