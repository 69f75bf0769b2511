import { expect, it, vi } from "vitest";
import { CodePanel } from "../src/code/code_panel";
import { TablesPanel } from "../src/tables/tables";
import type { Measured } from "../src/base/wire";

const WORST: Measured = {
  ...{ name: "worst-batches", title: "Worst batches", action: "Find", state: "ready", text: "" },
  table: {
    columns: [
      { name: "index", title: "Batch", kind: "text" },
      { name: "status", title: "Status", kind: "text" },
    ],
    rows: [
      ["batch 17", "different"],
      ["batch 3", "same bits"],
    ],
    total: 2,
    leads: "batches",
    numbers: { "batch 17": 17, "batch 3": 3 },
  },
};

it("opens the batch of a row", () => {
  const actions = {
    ...{ jump: vi.fn(), showStage: vi.fn(), send: vi.fn(), cancel: vi.fn(), canCancel: () => false },
    ...{ unfold: vi.fn(), toggle: vi.fn(), changed: vi.fn() },
  };
  const tables = new TablesPanel(actions, new CodePanel({ jump: vi.fn(), look: vi.fn() }));
  tables.showMeasured([WORST]);
  tables.element.querySelector<HTMLElement>('[data-tab="worst-batches"]')!.click();
  tables.element.querySelector<HTMLElement>("tbody tr button")!.click();
  expect(actions.send.mock.calls).toEqual([[{ type: "open-batch", number: 17 }]]);
  expect(actions.jump).not.toHaveBeenCalled();
});
