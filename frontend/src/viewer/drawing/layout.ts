/** Layouts by Graphviz, in a worker that is made from a text of the page. */

export interface LayoutRequest {
  number: number;
  dot: string;
}

export type LayoutAnswer = { number: number; svg: string } | { number: number; error: string };

const TIMEOUT_MS = 20_000;
const MOST_KEPT = 60;

/** The browser runs no workers, or no WebAssembly in them. */
class NoWorkerError extends Error {}

export class Layouts {
  private worker: Worker | null = null;
  private number = 0;
  private readonly kept = new Map<string, string>();
  private giveUp: ((reason: Error) => void) | null = null;
  private isElsewhere = false;

  /** `source` is the worker's code; `elsewhere` lays graphs out where the browser cannot. */
  constructor(
    private readonly source: string,
    private readonly elsewhere: ((dot: string) => Promise<string>) | null = null,
  ) {}

  /** Starts the worker, so that it is there when it is needed. */
  prepare(): void {
    if (this.worker || this.isElsewhere) return;
    try {
      this.start();
    } catch {
      // Whoever needs a layout hears of it.
    }
  }

  /** Ends the worker; it is started again if anything is laid out. */
  dispose(): void {
    this.stop(new Error("The inspector was closed."));
  }

  /** Lays out a graph. A layout that is still under way is given up. */
  async layOut(dot: string, made?: string): Promise<string> {
    const kept = made ?? this.kept.get(dot);
    if (kept !== undefined) return kept;
    if (this.giveUp) this.stop(new Error("Another layout was asked for meanwhile."));
    const svg = await this.laidOut(dot);
    this.kept.set(dot, svg);
    if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value!);
    return svg;
  }

  private async laidOut(dot: string): Promise<string> {
    if (this.elsewhere && this.isElsewhere) return this.elsewhere(dot);
    try {
      return await this.inWorker(dot);
    } catch (error) {
      if (!this.elsewhere || !(error instanceof NoWorkerError)) throw error;
      this.isElsewhere = true;
      return this.elsewhere(dot);
    }
  }

  private async inWorker(dot: string): Promise<string> {
    const worker = this.worker ?? this.start();
    const number = (this.number += 1);
    return new Promise<string>((resolve, reject) => {
      const timer = setTimeout(
        () => this.stop(new Error(`Graphviz was stopped after ${TIMEOUT_MS / 1000} s. Close some groups.`)),
        TIMEOUT_MS,
      );
      this.giveUp = (reason) => {
        clearTimeout(timer);
        reject(reason);
      };
      worker.onmessage = ({ data }: MessageEvent<LayoutAnswer>) => {
        if (data.number !== number) return;
        // One that has never made any does not run here.
        if ("error" in data && number === 1) return this.stop(noWorker(data.error));
        clearTimeout(timer);
        this.giveUp = null;
        if ("svg" in data) resolve(data.svg);
        else reject(new Error(`Graphviz could not lay out the graph: ${data.error}`));
      };
      worker.onerror = (event) => this.stop(noWorker(event.message || "its worker was not started"));
      worker.postMessage({ number, dot } satisfies LayoutRequest);
    });
  }

  private start(): Worker {
    const url = URL.createObjectURL(new Blob([this.source], { type: "text/javascript" }));
    try {
      this.worker = new Worker(url);
    } catch (error) {
      throw noWorker(String(error));
    }
    return this.worker;
  }

  private stop(reason: Error): void {
    this.worker?.terminate();
    this.worker = null;
    this.giveUp?.(reason);
    this.giveUp = null;
  }
}

function noWorker(why: string): NoWorkerError {
  return new NoWorkerError(`Graphviz does not run in this browser: ${why}`);
}
