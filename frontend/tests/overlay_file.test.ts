import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Cell } from "../src/base/wire";
import { Graphs } from "../src/viewer/graphs/graphs";
import { overlayOfFile, overlaysIn } from "../src/viewer/overlays/overlay_file";
import { FakeKernel, Page } from "./fake_kernel";
import { dataOf, MODELS, vectorsOf } from "./golden";
import { takeFiles } from "../src/app/graph_area";

const read = (file: string, text: string) =>
  overlaysIn(file, text).map(({ values, labels, ...rest }) => ({
    ...rest,
    values: Object.fromEntries(values),
    ...(labels.size > 0 && { labels: Object.fromEntries(labels) }),
  }));

describe("a file of overlays", () => {
  it("has names in the first column, and an overlay in each other", () => {
    const text =
      '\ufeffnode,latency,"back,end",is_cold\r\nlinear,0.5,"np""u",True\r\n\r\nrelu,1e-3,,False\nodd,NaN,cpu\n';
    const usual = { unit: "", combine: "sum" };
    expect(read("device.CSV", text)).toEqual([
      { ...usual, name: "latency", title: "latency", numeric: true, values: { linear: 0.5, relu: 0.001 } },
      {
        ...usual,
        name: "back,end",
        title: "back,end",
        numeric: false,
        values: { linear: 'np"u', odd: "cpu" },
      },
      { ...usual, name: "is_cold", title: "is_cold", numeric: true, values: { linear: 1, relu: 0 } },
    ]);
  });

  it("has overlays by name, with values or all that an overlay has", () => {
    const whole = {
      values: { head: 2 },
      unit: "s",
      combine: "max",
      title: "Time",
      labels: { head: "npu 3" },
    };
    const text = JSON.stringify({
      plain: { head: 1, stem: null, x: true },
      whole,
      words: { values: { x: 1 }, kind: "text" },
    });
    expect(read("a.json", text)).toEqual([
      { name: "plain", title: "plain", unit: "", combine: "sum", numeric: true, values: { head: 1, x: 1 } },
      { ...whole, name: "whole", numeric: true },
      {
        ...{ name: "words", title: "words", unit: "", combine: "sum", numeric: false, isText: true },
        ...{ values: { x: "1" }, labels: { x: "1" } },
      },
    ]);
  });

  it.each([
    ["a.txt", "x", "Expected a file that ends in .csv or .json, got a.txt."],
    ["a.csv", "", "(it has 0 columns of values)"],
    ["a.csv", "node,t\na,1,2", "(row 2 has more cells than the first)"],
    ["a.csv", "node,t\na,1\nb,2\na,3", "(a is there more than once)"],
    // As in Python, other keys are names of nodes.
    ["a.json", '{"a": {"values": {"x": 1}, "other": 2}}', "(the value of values is neither"],
    ["a.json", "{", "a.json is no table of values by node or module ("],
    ["a.json", "[1]", "(it has no values by name)"],
    ["a.json", '{"a": 1}', "(a has no values by name)"],
    ["a.json", '{"a": {"values": {"x": "w"}, "kind": "number"}}', "(the value of x is no number)"],
    ["a.json", '{"a": {"values": {}, "kind": "heat"}}', '("kind" is none of'],
    ["a.json", '{"a": {"values": {}, "combine": "mean"}}', '("combine" is neither'],
    ["a.json", '{"a": {"values": {}, "unit": 3}}', "(a title or unit is no text)"],
  ])("that is damaged is refused in words: %s %s", (file, text, words) => {
    expect(() => overlaysIn(file, text)).toThrow(words);
  });

  it.each(MODELS)("means on a graph what it means in Python: %s", (model) => {
    const data = dataOf(vectorsOf(model));
    for (const known of data.overlays.filter(({ name }) => name === "modules")) {
      const scene = new Graphs(data, () => []).scene(known.graph);
      const { nodes, groups } = scene.hierarchy;
      // As `tests/golden/make.py` makes it.
      const some = nodes.flatMap(({ name }, i) => (i % 3 ? [[name, i * 0.1] as const] : []));
      const modules = [...groups.keys()].flatMap((path, i) =>
        path && i % 3 === 1 ? [[path, i] as const] : [],
      );
      const values = Object.fromEntries([...some, ...modules]);
      const labels = Object.fromEntries(modules.map(([path]) => [path, "x"]));
      const [given] = overlaysIn("a.json", JSON.stringify({ modules: { values, labels } }));
      const { values: cells, groups: inGroups = {}, ...rest } = overlayOfFile(given!, scene);
      const { values: expected, groups: ofGroups = {}, ...others } = known;
      const rounded = (value: Cell): Cell => (typeof value === "number" ? Number(value.toFixed(6)) : value);
      expect(rest).toEqual(others);
      expect(cells.map(rounded)).toEqual(expected.map(rounded));
      for (const path of Object.keys({ ...ofGroups, ...inGroups }))
        expect(rounded(inGroups[path] ?? null), path).toEqual(rounded(ofGroups[path] ?? null));
    }
  });
});

it("a file is taken where it is dropped, and nothing else", () => {
  const [element, taken] = [document.createElement("div"), vi.fn()];
  takeFiles(element, taken);
  const drop = (type: string, types: string[], files: File[] = []): boolean =>
    element.dispatchEvent(
      Object.assign(new Event(type, { cancelable: true }), { dataTransfer: { types, files } }),
    );
  const file = new File(["node,t"], "a.csv");
  expect(drop("dragover", ["Files"]), "it says that it takes files").toBe(false);
  expect(element.className).toBe("fxi-receiving");
  expect(drop("drop", ["Files"], [file])).toBe(false);
  expect(element.className).toBe("");
  expect(taken.mock.calls).toEqual([[file]]);
  expect(drop("dragover", ["text/plain"])).toBe(true);
  expect(drop("drop", ["text/plain"])).toBe(true);
  expect(taken).toHaveBeenCalledOnce();
});

describe("an overlay that is given to the page", () => {
  let kernel: FakeKernel;
  let page: Page;
  const give = (file: string, text: string) => page.sends({ type: "add-overlays", file, text });
  beforeEach(async () => {
    kernel = new FakeKernel(undefined, { on: 2 });
    page = await Page.of(kernel);
  });

  it("colours every stage that is shown, and asks no kernel", async () => {
    await give("a.csv", "node,ours,kind\nrelu,2,hot\nstem_norm,1,cold\n");
    const { overlay, offered } = page.get("overlays");
    expect(offered.slice(-2).map(({ name }) => name)).toEqual(["ours", "kind"]);
    expect(overlay!.values[page.boxOf("relu")!]).toBe(2);
    await page.sends({ type: "show-stage", stage: 2, compared: 0, beside: true, between: [] });
    expect(page.get("overlays").beside[0]!.values[page.boxOf("stem_norm", 1)!]).toBe(1);
    await page.sends({ type: "show-overlay", name: "kind" });
    expect(page.get("overlays").overlay!.values[page.boxOf("relu")!]).toBe("hot");
    expect(kernel.askedFor("overlay")).toEqual([]);
    await give("a.json", '{"own": {"stem": 3, "relu": 1}}');
    expect(page.get("overlays").overlay!.total, "the value of a module counts, too").toBe(4);
    expect(kernel.state.view.overlay, "who opens the page again has no file").toBe("");
    expect(page.error).toBe("");
  });

  it("of another graph is refused, and what was shown stays", async () => {
    await page.sends({ type: "show-overlay", name: "sum" });
    await give("a.csv", "node,ours\nnobody,2\n");
    expect(page.error).toMatch(/^Reading the overlay failed: ours has no value for any node; expected names/);
    expect(page.get("overlays").overlay!.name).toBe("sum");
    expect(page.get("overlays").offered.map(({ name }) => name)).not.toContain("ours");
  });
});
