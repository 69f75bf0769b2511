/** What the inspector needs of the kernel: the state that both see, and messages. */

import type { State, ToKernel } from "./protocol";

export interface Model {
  get<K extends keyof State>(name: K): State[K];
  set<K extends keyof State>(name: K, value: State[K]): void;
  save_changes(): void;
  send(content: ToKernel): void;
  on(event: string, callback: (...values: never[]) => void): void;
  off(event: string, callback: (...values: never[]) => void): void;
}
