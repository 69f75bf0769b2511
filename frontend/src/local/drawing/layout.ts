/** Layouts by Graphviz, in a worker that is made from a text of the page. */

export interface LayoutRequest {
  number: number;
  dot: string;
}

export type LayoutAnswer = { number: number; svg: string } | { number: number; error: string };

const TIMEOUT_MS = 20_000;
const MOST_KEPT = 60;

export class Layouts {
  private worker: Worker | null = null;
  private number = 0;
  private readonly kept: Map<string, string>;
  private giveUp: ((reason: Error) => void) | null = null;

  /** `source` is the worker's code; `made` are layouts that need no worker, DOT -> SVG. */
  constructor(
    private readonly source: string,
    made: Record<string, string>,
  ) {
    this.kept = new Map(Object.entries(made));
    this.start();
  }

  /** Lays out a graph. A layout that is still under way is given up. */
  async layOut(dot: string): Promise<string> {
    const kept = this.kept.get(dot);
    if (kept !== undefined) return kept;
    if (this.giveUp) this.stop(new Error("Another layout was asked for meanwhile."));
    const worker = this.worker ?? this.start();
    const number = (this.number += 1);
    const svg = await new Promise<string>((resolve, reject) => {
      this.giveUp = reject;
      const timer = setTimeout(
        () => this.stop(new Error(`Graphviz was stopped after ${TIMEOUT_MS / 1000} s. Close some groups.`)),
        TIMEOUT_MS,
      );
      worker.onmessage = ({ data }: MessageEvent<LayoutAnswer>) => {
        if (data.number !== number) return;
        clearTimeout(timer);
        this.giveUp = null;
        if ("svg" in data) resolve(data.svg);
        else reject(new Error(`Graphviz could not lay out the graph: ${data.error}`));
      };
      worker.onerror = (event) => {
        clearTimeout(timer);
        this.stop(
          new Error(
            `Graphviz does not run in this browser: ${event.message || "its worker was not started"}`,
          ),
        );
      };
      worker.postMessage({ number, dot } satisfies LayoutRequest);
    });
    this.kept.set(dot, svg);
    if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value!);
    return svg;
  }

  private start(): Worker {
    const url = URL.createObjectURL(new Blob([this.source], { type: "text/javascript" }));
    this.worker = new Worker(url);
    return this.worker;
  }

  private stop(reason: Error): void {
    this.worker?.terminate();
    this.worker = null;
    this.giveUp?.(reason);
    this.giveUp = null;
  }
}
