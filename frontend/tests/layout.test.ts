/** Layouts in a worker, and where there is none. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Layouts, type LayoutAnswer, type LayoutRequest } from "../src/viewer/drawing/layout";

class FakeWorker {
  static readonly made: FakeWorker[] = [];
  static answer: (request: LayoutRequest) => LayoutAnswer | null = ({ number, dot }) => ({
    number,
    svg: `<${dot}>`,
  });
  onmessage: ((event: { data: LayoutAnswer }) => void) | null = null;
  onerror: ((event: { message: string }) => void) | null = null;
  readonly asked: LayoutRequest[] = [];
  isTerminated = false;

  constructor() {
    FakeWorker.made.push(this);
  }

  postMessage(request: LayoutRequest): void {
    this.asked.push(request);
    const data = FakeWorker.answer(request);
    if (data) queueMicrotask(() => this.onmessage?.({ data }));
  }

  terminate(): void {
    this.isTerminated = true;
  }
}

const elsewhere = vi.fn(async (dot: string) => `kernel: ${dot}`);
const source = "code";

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("Worker", FakeWorker);
  vi.stubGlobal("URL", { createObjectURL: () => "blob:" });
  FakeWorker.made.length = 0;
  FakeWorker.answer = ({ number, dot }) => ({ number, svg: `<${dot}>` });
  elsewhere.mockClear();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a layout", () => {
  it("is made in the worker, once", async () => {
    const layouts = new Layouts(source, elsewhere);
    expect(await layouts.layOut("a")).toBe("<a>");
    expect(await layouts.layOut("a")).toBe("<a>");
    expect(await layouts.layOut("b")).toBe("<b>");
    expect(FakeWorker.made).toHaveLength(1);
    expect(FakeWorker.made[0]!.asked.map(({ dot }) => dot)).toEqual(["a", "b"]);
    expect(elsewhere).not.toHaveBeenCalled();
  });

  it("needs a worker, which is there once it is prepared for, and ends with the inspector", async () => {
    const layouts = new Layouts(source, elsewhere);
    expect(FakeWorker.made).toHaveLength(0);
    layouts.prepare();
    layouts.prepare();
    expect(await layouts.layOut("a")).toBe("<a>");
    expect(FakeWorker.made).toHaveLength(1);
    layouts.dispose();
    expect(FakeWorker.made[0]!.isTerminated).toBe(true);
  });

  it("that is made already is taken", async () => {
    expect(await new Layouts(source).layOut("a", "made")).toBe("made");
    expect(FakeWorker.made.flatMap(({ asked }) => asked)).toEqual([]);
  });

  it("that Graphviz cannot make is said to be so, and the next one is made", async () => {
    const layouts = new Layouts(source, elsewhere);
    await layouts.layOut("a");
    FakeWorker.answer = ({ number, dot }) =>
      dot === "bad" ? { number, error: "syntax" } : { number, svg: dot };
    await expect(layouts.layOut("bad")).rejects.toThrow("Graphviz could not lay out the graph: syntax");
    expect(await layouts.layOut("c")).toBe("c");
    expect(elsewhere).not.toHaveBeenCalled();
  });

  it("is given up after a while, and the next one gets a worker of its own", async () => {
    const layouts = new Layouts(source, elsewhere);
    FakeWorker.answer = () => null;
    const failed = expect(layouts.layOut("slow")).rejects.toThrow("Graphviz was stopped after 20 s.");
    await vi.advanceTimersByTimeAsync(20_000);
    await failed;
    expect(FakeWorker.made[0]!.isTerminated).toBe(true);
    FakeWorker.answer = ({ number, dot }) => ({ number, svg: dot });
    expect(await layouts.layOut("next")).toBe("next");
    expect(FakeWorker.made).toHaveLength(2);
  });

  it("gives way to another, which has all its time", async () => {
    const layouts = new Layouts(source, elsewhere);
    FakeWorker.answer = () => null;
    const first = expect(layouts.layOut("first")).rejects.toThrow("Another layout was asked for meanwhile.");
    await vi.advanceTimersByTimeAsync(15_000);
    const second = layouts.layOut("second");
    await first;
    await vi.advanceTimersByTimeAsync(10_000);
    const worker = FakeWorker.made[1]!;
    expect(worker.isTerminated).toBe(false);
    worker.onmessage!({ data: { number: worker.asked[0]!.number, svg: "late" } });
    expect(await second).toBe("late");
  });
});

describe("a browser that cannot run the worker", () => {
  const failures: [string, () => void][] = [
    [
      "has none",
      () =>
        vi.stubGlobal(
          "Worker",
          class {
            constructor() {
              throw new Error("no workers");
            }
          },
        ),
    ],
    [
      "does not load Graphviz",
      () => (FakeWorker.answer = ({ number }) => ({ number, error: "no WebAssembly" })),
    ],
    [
      "forbids its code",
      () => {
        FakeWorker.answer = () => {
          queueMicrotask(() => FakeWorker.made.at(-1)!.onerror!({ message: "policy" }));
          return null;
        };
      },
    ],
  ];

  it.each(failures)("and %s has the kernel lay out, from then on", async (_, fail) => {
    fail();
    const layouts = new Layouts(source, elsewhere);
    expect(await layouts.layOut("a")).toBe("kernel: a");
    expect(await layouts.layOut("b")).toBe("kernel: b");
    expect(await layouts.layOut("a")).toBe("kernel: a");
    expect(elsewhere).toHaveBeenCalledTimes(2);
  });

  it.each(failures)("and %s says so where there is no kernel", async (_, fail) => {
    fail();
    await expect(new Layouts(source).layOut("a")).rejects.toThrow("Graphviz does not run in this browser");
  });
});
