import { beforeEach, describe, expect, it, vi } from "vitest";
import { type Details, NO_VALUES, type ShownValues } from "../src/base/protocol";
import { DetailsPanel, type DetailActions } from "../src/panels/details";
import { colourOf, numbersOf, pixel, scaleOf } from "../src/values/value_map";
import { ValueSection, type ValueActions } from "../src/values/value_section";
import { FakeKernel, Page, settled } from "./fake_kernel";
import { INPUTS, NODE_VALUE, partOf } from "./node_value";
import type { NodeValue, TensorMap, ValuePart } from "../src/base/wire";

async function selected(kernel = new FakeKernel(), name = "stem_conv"): Promise<Page> {
  const page = await Page.of(kernel);
  await page.sends({ type: "select-node", name, show: true, pane: 0 });
  return page;
}

describe("the values of a node", () => {
  it("are asked for when somebody wants them, and not when a node is selected", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    expect(page.get("values").state).toBe("none");
    expect(kernel.askedFor("value")).toEqual([]);
    await page.sends({ type: "show-values" });
    const place = { graph: 0, name: "stem_conv", before: null, inputs: "" };
    expect(kernel.askedFor("value")).toEqual([{ type: "value", ...place }]);
    expect(page.get("values")).toMatchObject({ state: "ready", value: NODE_VALUE, part: partOf(0) });
  });

  it("are those of the node that is selected", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    kernel.held.add("value");
    page.viewer.send({ type: "show-values" });
    await settled();
    expect(page.get("values").state).toBe("pending");
    await page.sends({ type: "select-node", name: "stem_norm", show: true, pane: 0 });
    kernel.release();
    await settled();
    expect(page.get("values")).toMatchObject({ state: "none", value: null });
    await page.sends({ type: "clear-selection" });
    expect(page.get("values").state).toBe("absent");
  });

  it("are computed on other inputs, which stay until the session changes or they are gone", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    await page.sends({ type: "show-values", inputs: "batch 7" });
    await page.sends({ type: "show-part", tensor: 1, rows: null, columns: null, index: [] });
    await page.sends({ type: "select-node", name: "stem_norm", show: true, pane: 0 });
    await page.sends({ type: "show-values" });
    expect(kernel.askedFor("value")).toMatchObject([{ inputs: "batch 7" }, { inputs: "batch 7" }]);
    expect(kernel.askedFor("value-part")).toMatchObject([{ inputs: "batch 7" }]);
    kernel.value = { state: "failed", text: "There are no inputs." };
    await page.sends({ type: "show-values", inputs: "batch 99" });
    expect(page.get("values")).toMatchObject({ state: "failed", text: "There are no inputs." });
    await page.sends({ type: "show-values" });
    expect(kernel.askedFor("value").at(-1)).toMatchObject({ inputs: "" });
    await page.sends({ type: "show-values", inputs: "batch 7" });
    kernel.switchTo(1);
    await settled();
    await page.sends({ type: "select-node", name: "stem_conv", show: true, pane: 0 });
    await page.sends({ type: "show-values" });
    expect(kernel.askedFor("value").at(-1)).toMatchObject({ inputs: "" });
  });

  it("go when the session changes", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    await page.sends({ type: "show-values" });
    expect(page.get("values").state).toBe("ready");
    kernel.switchTo(1);
    await settled();
    expect(page.get("values").state).not.toBe("ready");
  });

  it("that fail leave the button, and say why", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    kernel.failing.add("value");
    await page.sends({ type: "show-values" });
    expect(page.get("values")).toMatchObject({ state: "none", text: "The kernel did not answer." });
    kernel.failing.clear();
    kernel.value = { state: "failed", text: "It does not run." };
    await page.sends({ type: "show-values" });
    expect(page.get("values")).toMatchObject({ state: "failed", text: "It does not run." });
    kernel.value = { state: "cancelled" };
    await page.sends({ type: "show-values" });
    expect(page.get("values")).toMatchObject({ state: "none", text: "Cancelled." });
  });

  it("are read along other axes, of which the last that were asked for count", async () => {
    const kernel = new FakeKernel();
    const page = await selected(kernel);
    await page.sends({ type: "show-values" });
    kernel.held.add("value-part");
    for (const place of [1, 2, 3])
      page.viewer.send({ type: "show-part", tensor: 1, rows: 1, columns: 2, index: [place, 0, 0] });
    await settled();
    kernel.release();
    await settled();
    expect(kernel.askedFor("value-part")).toMatchObject([{ index: [1, 0, 0] }, { index: [3, 0, 0] }]);
    expect(page.get("values").part).toEqual(partOf(1, 3));
  });

  it("of a report are there if they were written, and it says what was left out", async () => {
    const kernel = new FakeKernel();
    kernel.isFixed = true;
    const text = "The values of 1 of 2 changed nodes are in this report.";
    const written = { value: NODE_VALUE, parts: [partOf(0), partOf(1)] };
    kernel.values = { text, graphs: [0], nodes: { stem_conv: written } };
    const page = await selected(kernel);
    expect(page.get("values")).toMatchObject({ state: "ready", part: partOf(0), isFixed: true });
    await page.sends({ type: "show-part", tensor: 1, rows: null, columns: null, index: [] });
    expect(page.get("values").part).toEqual(partOf(1));
    await page.sends({ type: "select-node", name: "stem_norm", show: true, pane: 0 });
    expect(page.get("values")).toMatchObject({ state: "absent", text });
    expect(kernel.asked).toEqual([]);
  });
});

describe("the section of the values", () => {
  const actions = {
    show: vi.fn(),
    on: vi.fn(),
    part: vi.fn(),
    jump: vi.fn(),
    cancel: vi.fn(),
    canCancel: () => true,
  };
  let section: ValueSection;

  beforeEach(() => {
    vi.clearAllMocks();
    section = new ValueSection(actions as unknown as ValueActions);
    document.body.replaceChildren(section.element);
  });

  function show(changes: Partial<ShownValues>): void {
    section.show({ ...NO_VALUES, state: "none", ...changes });
  }

  function ready(part: ValuePart = partOf(0), value: NodeValue = NODE_VALUE, isFixed = false): void {
    show({ state: "ready", value, part, isFixed });
  }

  const all = <T extends HTMLElement>(selector: string): T[] => [
    ...section.element.querySelectorAll<T>(selector),
  ];
  const one = <T extends HTMLElement>(selector: string): T => all<T>(selector)[0]!;
  const rows = (): string[][] =>
    all("tr").map((row) => [...row.children].map(({ textContent }) => textContent ?? ""));

  it("has a button, and can be cancelled while they are computed", () => {
    show({});
    one("button").click();
    expect(actions.show).toHaveBeenCalledOnce();
    show({ state: "pending" });
    const [pending, cancel] = all<HTMLButtonElement>("button");
    expect(pending!.disabled).toBe(true);
    cancel!.click();
    expect(actions.cancel).toHaveBeenCalledOnce();
    show({ state: "failed", text: "<b>It does not run.</b>" });
    expect(one("[role=status]").textContent).toBe("<b>It does not run.</b>");
    show({ state: "absent" });
    expect(section.element.hidden).toBe(true);
  });

  it("has the statistics of a value, of the original's and of their difference", () => {
    ready();
    expect(rows()[0]).toEqual(["", "Value", "Original", "Difference"]);
    expect(rows()).toContainEqual(["Min", "-1", "0", "—"]);
    expect(rows()).toContainEqual(["Zeros", "25.0 %", "0.0 %", ""]);
    expect(rows()).toContainEqual(["+∞", "2", "0", "0"]);
    expect(rows()).toContainEqual(["−∞", "1", "0", "0"]);
    expect(one(".fxi-ends").textContent).toBe("-11");
    const histogram = { edges: [-0.5, 0.49999999999999994, 1.5, 2.5], counts: [3, 1, 0] };
    ready({ ...partOf(0), histogram });
    expect(one(".fxi-ends").textContent).toBe("02");
    const titles = ["0: 3 elements", "1: 1 element", "2: 0 elements"];
    expect(all(".fxi-bin").map(({ title }) => title)).toEqual(titles);
  });

  it("offers other inputs, and any batch of the data by its number", () => {
    ready(partOf(0), { ...NODE_VALUE, inputs: INPUTS });
    const select = one<HTMLSelectElement>(".fxi-values-inputs select");
    expect([...select.options].map(({ text }) => text)).toEqual([
      "the session's inputs",
      "worst batch 7: different",
    ]);
    expect(select.value).toBe("");
    select.value = "batch 7";
    select.dispatchEvent(new Event("change"));
    expect(actions.on).toHaveBeenLastCalledWith("batch 7");
    const number = one<HTMLInputElement>(".fxi-values-inputs input");
    for (const wrong of ["", "-1", "9", "1.5"]) {
      number.value = wrong;
      number.dispatchEvent(new Event("change"));
      expect(number.value).toBe("");
    }
    expect(actions.on).toHaveBeenCalledOnce();
    for (const first_or_last of ["0", "8"]) {
      number.value = first_or_last;
      number.dispatchEvent(new Event("change"));
      expect(actions.on).toHaveBeenLastCalledWith(`batch ${first_or_last}`);
    }
    ready(partOf(0), { ...NODE_VALUE, inputs: { ...INPUTS, chosen: "batch 3" } });
    expect(one<HTMLSelectElement>(".fxi-values-inputs select").value).toBe("batch 3");
    expect(one<HTMLInputElement>(".fxi-values-inputs input").value).toBe("3");
    for (const inputs of [null, { chosen: "", choices: INPUTS.choices.slice(0, 1), batches: 0 }]) {
      ready(partOf(0), { ...NODE_VALUE, inputs });
      expect(all(".fxi-values-inputs")).toEqual([]);
    }
  });

  it("goes to the first element that is not finite, and to the node it comes from", () => {
    ready();
    all("td button")[0]!.click();
    expect(actions.part).toHaveBeenCalledWith(0, { rows: 1, columns: 2, index: [3, 0, 1] });
    ready(partOf(0, 3));
    expect(one(".fxi-map-reading").textContent).toBe("[3, 0, 1] = ∞");
    one(".fxi-values-origin button").click();
    expect(actions.jump).toHaveBeenCalledWith("log");
  });

  it("reads the cells of a map with the arrow keys, and says what a cell stands for", () => {
    ready();
    const field = one(".fxi-map-field");
    const press = (key: string): string => {
      field.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      return one(".fxi-map-reading").textContent!;
    };
    expect(field.getAttribute("aria-label")).toContain("Value: 2 rows and 2 columns, from -2 to 2.");
    expect(one(".fxi-map-bar").getAttribute("style")).toContain(
      "low),var(--fxi-map-zero),var(--fxi-map-high)",
    );
    expect(press("ArrowDown")).toBe("[0, 0, 0] = -1");
    expect(press("ArrowRight")).toBe("[0, 0, 1] = ∞");
    expect(press("ArrowDown")).toBe("[0, 1, 1] = 2");
    expect(press("End")).toBe("[0, 1, 1] = 2");
    expect(section.element.textContent).not.toContain("Each cell");
    ready({ ...partOf(0), map: { ...partOf(0).map, shape: [5, 2], block: [3, 1] } });
    expect(one(".fxi-map-reading").textContent).toBe("[0, 3–4, 1] = 2");
    expect(section.element.textContent).toContain("Each cell stands for 3 × 1 elements");
  });

  it("shows small maps of all indices of a dimension, and the one that is pressed", () => {
    ready();
    expect(one(".fxi-small-maps").hidden).toBe(true);
    const cells = btoa(String.fromCharCode(...new Uint8Array(new Float32Array(8).buffer)));
    const small = {
      dimension: 0,
      first: 2,
      count: 2,
      size: [2, 2] as [number, number],
      numbers: "f4" as const,
      cells,
    };
    ready({ ...partOf(0, 2), map: { ...partOf(0, 2).map, small } });
    const maps = all(".fxi-small-map");
    expect(maps.map((map) => [map.textContent, map.getAttribute("aria-pressed")])).toEqual([
      ["2", "true"],
      ["3", "false"],
    ]);
    maps[1]!.click();
    expect(actions.part).toHaveBeenCalledWith(0, { rows: 1, columns: 2, index: [3, 0, 0] });
  });

  it("has a slider for each dimension that is not shown", () => {
    ready();
    const [slider] = all<HTMLInputElement>("input");
    expect([slider!.max, all(".fxi-axis output")[0]!.textContent]).toEqual(["3", "dim 0: index 0 of 4"]);
    slider!.value = "2";
    slider!.dispatchEvent(new Event("input"));
    expect(actions.part).toHaveBeenLastCalledWith(0, { rows: 1, columns: 2, index: [2, 0, 0] });
    expect(all(".fxi-axis output")[0]!.textContent).toBe("dim 0: index 2 of 4");
    const [turned] = all<HTMLSelectElement>(".fxi-axis select");
    turned!.value = "2";
    turned!.dispatchEvent(new Event("change"));
    expect(actions.part).toHaveBeenLastCalledWith(0, { rows: 2, columns: 1, index: [2, 0, 0] });
  });

  it("keeps its sliders while another index arrives", () => {
    ready();
    const [slider] = all("input");
    ready(partOf(0, 2));
    expect(all<HTMLInputElement>("input")[0]).toBe(slider);
    expect((slider as HTMLInputElement).value).toBe("2");
  });

  it("offers the weights, and each kind along the same axes", () => {
    ready();
    const [tensor] = all<HTMLSelectElement>("select");
    expect([...tensor!.options].map(({ text }) => text)).toEqual(["Value", "weight"]);
    const [, original] = all(".fxi-way");
    original!.click();
    expect(actions.part).toHaveBeenLastCalledWith(1, { rows: 1, columns: 2, index: [0, 0, 0] });
    ready(partOf(3));
    expect(rows()[0]).toEqual(["", "weight"]);
  });

  it("is static in a report", () => {
    ready(partOf(0), NODE_VALUE, true);
    expect(all("input, td button, .fxi-axis select")).toEqual([]);
    expect(section.element.textContent).toContain("dim 0: index 0 of 4");
  });

  it("says what is missing where there is no tensor", () => {
    const notes = ["There are no inputs."];
    show({ state: "ready", value: { ...NODE_VALUE, tensors: [], notes, firstNan: null }, part: null });
    expect(section.element.textContent).toContain("There are no inputs.");
    expect(all("table, canvas")).toEqual([]);
    ready();
    show({ state: "ready", value: { ...NODE_VALUE, at: "Original", tensors: [], notes }, part: null });
    expect(all("select, .fxi-way")).toEqual([]);
    expect(section.element.textContent).toContain("At the stage “Original”");
  });
});

describe("the details around them", () => {
  it("stay where somebody has scrolled to, and keep the focus, while more arrives", () => {
    const values = { show: vi.fn(), part: vi.fn(), cancel: vi.fn(), canCancel: () => false };
    const panel = new DetailsPanel({ values } as unknown as DetailActions, () => null);
    document.body.replaceChildren(panel.element);
    const details = (name: string): Details => ({
      ...{ kind: "node", box: null, title: name, name, subtitle: "", crumbs: [], fields: [] },
      ...{ inputs: [], users: [], marks: [] },
    });
    const body = panel.element.firstElementChild!;
    panel.show(details("mul"));
    panel.showValues({ ...NO_VALUES, state: "ready", value: NODE_VALUE, part: partOf(0) });
    const slider = panel.element.querySelector<HTMLElement>("input")!;
    slider.focus();
    body.scrollTop = 40;
    panel.show(details("mul"));
    expect(body.scrollTop).toBe(40);
    expect(document.activeElement).toBe(slider);
    panel.show(details("add"));
    expect(body.scrollTop).toBe(0);
  });
});

describe("the colours of numbers", () => {
  const [low, zero, high, nonFinite] = ["#0000ff", "#ffffff", "#ff0000", "#00ff00"].map(pixel);
  const colours = { low: low!, zero: zero!, high: high!, nonFinite: nonFinite! };
  const shown = (...cells: number[]): number[][] => {
    const scale = scaleOf(Float64Array.from(cells));
    return cells.map((cell) => colourOf(cell, scale, colours).slice(0, 3));
  };

  it("are as far from zero as the numbers are", () => {
    expect(shown(-1, 0, 2)).toEqual([
      [128, 128, 255],
      [255, 255, 255],
      [255, 0, 0],
    ]);
    expect(shown(3, 4)).toEqual([
      [255, 255, 255],
      [255, 0, 0],
    ]);
    expect(shown(-3, -4)).toEqual([
      [255, 255, 255],
      [0, 0, 255],
    ]);
    expect(shown(0)).toEqual([[255, 255, 255]]);
  });

  it("show what is not finite in a colour of its own", () => {
    expect(shown(NaN, 1, -Infinity)).toEqual([
      [0, 255, 0],
      [255, 0, 0],
      [0, 255, 0],
    ]);
  });

  it("have cells of four or of eight bytes", () => {
    const cellsOf = ({ numbers, cells }: TensorMap) => numbersOf(numbers, cells);
    expect([...cellsOf(partOf(0).map)]).toEqual([-1, Infinity, -2, 2]);
    const bytes = new Uint8Array(new Float64Array([0.1]).buffer);
    const map = { ...partOf(0).map, numbers: "f8" as const, cells: btoa(String.fromCharCode(...bytes)) };
    expect([...cellsOf(map)]).toEqual([0.1]);
  });
});
