import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { PANELS_AT_FIRST } from "../src/base/protocol";
import { ReportKernel } from "../src/viewer/kernels/report_kernel";
import { VIEW_AT_FIRST } from "../src/viewer/view_link";
import { vectorsOf } from "./golden";
import type { ViewState, WrittenReport } from "../src/base/wire";

const NOTHING = { columns: [], rows: [], total: 0 };
const WRITTEN: WrittenReport = {
  data: vectorsOf("conv").steps[0]!.part,
  stages: {
    names: ["Original", "1. Merge"],
    version: 1,
    changes: [],
    alone: {},
    merged: {},
    pairs: {},
    codes: {},
    codeDifferences: {},
    preview: null,
  },
  passes: { passes: [], canUndo: false, canRedo: false, fixed: true },
  tables: { outputs: { state: "none", text: "", table: null }, nodes: { text: "", table: NOTHING } },
};

beforeEach(() => {
  history.replaceState(null, "", "/");
  vi.useFakeTimers();
});

afterEach(() => vi.useRealTimers());

/** Keeps a view, and waits until it is in the address. */
function keep(kernel: ReportKernel, view: Partial<ViewState>): void {
  kernel.keep("view", { ...VIEW_AT_FIRST, opened: [], ...view });
  vi.runAllTimers();
}

describe("a report", () => {
  it("begins with the view of its address", () => {
    location.hash = "stage=0&query=op%3Aoutput";
    const { state } = new ReportKernel(WRITTEN);
    expect(state.view).toEqual({ ...VIEW_AT_FIRST, stage: 0, query: "op:output" });
    expect(state.status.error).toBeNull();
  });

  it.each(["stage=7", "x=y", "%", "graph=2"])(
    "begins as ever with an address that is no view, and says so: %s",
    (text) => {
      location.hash = text;
      const { state } = new ReportKernel(WRITTEN);
      expect(state.view).toEqual(VIEW_AT_FIRST);
      expect(state.status.error?.title).toBe("The address holds no view of this report");
      expect(state.status.error?.text).toContain("The link is ignored.");
    },
  );

  it("keeps its view in the address, and nothing of a first view", () => {
    const kernel = new ReportKernel(WRITTEN);
    keep(kernel, { overlay: "flops" });
    expect(location.hash).toBe("#colours=flops");
    keep(kernel, {});
    expect(location.href).not.toContain("#");
  });

  it("goes to the view of an address that is entered later", () => {
    const kernel = new ReportKernel(WRITTEN);
    const changed = vi.fn();
    kernel.follow(changed);
    kernel.keep("view", { ...VIEW_AT_FIRST, query: "relu" });
    location.hash = "node=mul";
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    const selected = { kind: "node", name: "mul", pane: 0 };
    expect(changed).toHaveBeenLastCalledWith("view", { ...VIEW_AT_FIRST, selected });
    vi.runAllTimers();
    expect(location.hash, "what is entered stays").toBe("#node=mul");
    location.hash = "nodes=mul";
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    expect(changed).toHaveBeenLastCalledWith("status");
  });

  it("shares the address with other graphs of the report, until it is closed", () => {
    location.hash = "graph=2&stage=0";
    const kernel = new ReportKernel(WRITTEN, 2);
    expect(kernel.state.view).toEqual({ ...VIEW_AT_FIRST, stage: 0 });
    keep(kernel, { query: "a" });
    expect(location.hash).toBe("#graph=2&query=a");
    keep(kernel, {});
    expect(location.hash).toBe("#graph=2");
    const changed = vi.fn();
    kernel.follow(changed);
    location.hash = "graph=1&node=mul";
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    expect(changed).not.toHaveBeenCalled();
    kernel.dispose();
    location.hash = "graph=2&node=mul";
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    keep(kernel, {});
    expect(changed).not.toHaveBeenCalled();
    expect(location.hash).toBe("#graph=2&node=mul");
  });

  it("keeps how its panels stand in all of its graphs", () => {
    new ReportKernel(WRITTEN).keep("panels", { ...PANELS_AT_FIRST, passes: "folded", left: 300 });
    expect(new ReportKernel(WRITTEN).state.panels).toEqual({
      ...PANELS_AT_FIRST,
      passes: "folded",
      left: 300,
    });
    new ReportKernel(WRITTEN).keep("panels", PANELS_AT_FIRST);
  });
});
