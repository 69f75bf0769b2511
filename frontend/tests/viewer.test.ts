/** How the viewer behaves, with a kernel that answers from golden vectors, late, or not at all. */

import { beforeEach, describe, expect, it } from "vitest";
import type { Box, NodesFound, SearchAnswer } from "../src/base/protocol";
import { Data } from "../src/viewer/graphs/data";
import { Scene } from "../src/viewer/graphs/scene";
import { FakeKernel, Page, settled, type Told } from "./fake_kernel";
import { vectorsOf } from "./golden";
import { PLAIN } from "../src/viewer/graphs/panes";

const SAMPLE = ["", "opp:x", '"', "path:", "<b>", "x".repeat(20_000), "\0", "[", "(", "by:", "shape:[", "-"];

let kernel: FakeKernel;
let page: Page;

async function start(
  options: ConstructorParameters<typeof FakeKernel>[1] = {},
  model = "conv",
): Promise<void> {
  kernel = new FakeKernel(vectorsOf(model), options);
  page = await Page.of(kernel);
}

const focusIn = (told: Told[]) => told.filter((message) => message.type === "focus");
const select = (name: string, show = true, pane = 0) => ({ type: "select-node", name, show, pane }) as const;
const showStage = (
  stage: number,
  compared: "" | "below" | number = "",
  beside = false,
  between: number[] = [],
) => ({ type: "show-stage", stage, compared, beside, between }) as const;
const signatureOf = (i: number) => kernel.state.passes.passes[i]!.signature;
const drawn = (pane = 0): string[] => {
  return Object.values(page.picture(pane).boxes).flatMap(({ node, kind }) =>
    node && kind !== "chip" ? [node] : [],
  );
};
const words = (pane = 0): Set<string> => {
  const picture = page.picture(pane);
  return new Set(
    Object.values(picture.boxes).flatMap(({ marks }) => marks.map((i) => picture.signatures[i]!)),
  );
};

describe("the first picture", () => {
  beforeEach(() => start());

  it("shows the overview, the model, and no marks", () => {
    expect(page.opened).toEqual(["head", "stem"]);
    expect(page.get("details").kind).toBe("model");
    expect(words()).toEqual(new Set());
    expect(page.get("beside")).toEqual([]);
    expect(page.error).toBe("");
  });

  it("has an element for each box and edge", () => {
    const { svg, boxes, edges } = page.get("picture");
    const root = new DOMParser().parseFromString(svg, "image/svg+xml");
    expect(root.querySelector("parsererror")).toBeNull();
    for (const id of [...Object.keys(boxes), ...Object.keys(edges)])
      expect(root.getElementById(id), id).not.toBeNull();
  });
});

describe("groups", () => {
  beforeEach(() => start());

  it("close and open again to the same boxes", async () => {
    const before = page.get("picture");
    await page.sends({ type: "close", path: "head" });
    expect(page.get("picture").boxes[page.groupBox("head")!]!.openable).toBe(true);
    expect(drawn()).not.toContain("relu");
    await page.sends({ type: "open", path: "head" });
    expect(page.get("picture")).toEqual(before);
  });

  it("are all as at first in the overview", async () => {
    const first = page.get("picture");
    await page.sends({ type: "close", path: "head" }, { type: "close", path: "stem" });
    expect(page.opened).toEqual([]);
    await page.sends({ type: "overview" });
    expect(page.get("picture")).toEqual(first);
  });

  it("that are opened one right after the other all stay open", async () => {
    await page.sends({ type: "close", path: "head" }, { type: "close", path: "stem" });
    const drawings = page.layouts.outlines.length;
    await page.sends({ type: "open", path: "head" }, { type: "open", path: "stem" });
    expect(page.opened).toEqual(["head", "stem"]);
    expect(page.layouts.outlines.length - drawings).toBe(2);
    expect(kernel.state.view.opened!.sort()).toEqual(["head", "stem"]);
  });

  it("that are not there are said so, and nothing changes", async () => {
    const first = page.get("picture");
    for (const type of ["open", "close"] as const) {
      for (const path of ["nowhere", ""]) {
        await page.sends({ type, path });
        expect(page.error).toContain("no group");
      }
    }
    expect(page.get("picture")).toEqual(first);
  });

  it("that cannot be laid out stay closed, and what was shown stays", async () => {
    await page.sends({ type: "close", path: "head" });
    const first = page.get("picture");
    page.layouts.error = new Error("too much");
    const told = await page.sends({ type: "open", path: "head" });
    expect(page.error).toBe("Opening the group failed: too much");
    expect(told).toEqual([{ type: "done", value: null }]);
    expect(page.get("picture")).toBe(first);
    page.layouts.error = null;
    await page.sends({ type: "close", path: "stem" });
    expect(page.opened).toEqual([]);
    expect(kernel.state.view.opened).toEqual([]);
  });
});

describe("passes", () => {
  it("that are switched on open what they have changed, and close it when they go", async () => {
    await start({ on: 1 });
    await page.sends({ type: "close", path: "head" });
    expect(page.opened).toEqual(["stem"]);
    const first = page.told.length;
    kernel.switchTo(2);
    await settled();
    expect(page.opened).toEqual(["head", "stem"]);
    const merged = page.boxOf("query_key_merged")!;
    expect(page.get("picture").boxes[merged]!.marks).toEqual([1]);
    const [focus] = focusIn(page.told.slice(first));
    expect(focus).toMatchObject({ gently: true, pane: 0 });
    expect(focus!.boxes).toContain(merged);
    kernel.switchTo(1);
    await settled();
    expect(page.opened).toEqual(["stem"]);
  });

  it("show the very same picture when they are switched on and off again", async () => {
    await start();
    const first = page.get("picture");
    kernel.switchTo(2);
    await settled();
    expect(page.get("picture")).not.toEqual(first);
    kernel.switchTo(0);
    await settled();
    expect(page.get("picture")).toEqual(first);
  });

  it("leave open what a person has opened", async () => {
    await start({ on: 1 });
    await page.sends({ type: "close", path: "head" });
    kernel.switchTo(2);
    await settled();
    await page.sends({ type: "open", path: "head" });
    kernel.switchTo(1);
    await settled();
    expect(page.opened).toEqual(["head", "stem"]);
  });

  it("leave closed what a person has closed where they change nothing", async () => {
    await start({ on: 1 });
    await page.sends({ type: "close", path: "stem" });
    kernel.switchTo(2);
    await settled();
    expect(page.opened).toEqual(["head"]);
  });

  it("close what was opened for them though their signature has changed meanwhile", async () => {
    await start({ on: 1 });
    await page.sends({ type: "close", path: "head" });
    kernel.switchTo(2);
    await settled();
    const { passes } = kernel.state.passes;
    const changed = passes.map((pass, i) => (i === 1 ? { ...pass, signature: "other", excluded: 1 } : pass));
    kernel.put("passes", { ...kernel.state.passes, passes: changed });
    kernel.put("stages", { ...kernel.state.stages, version: 100 });
    await settled();
    kernel.switchTo(1);
    await settled();
    expect(page.opened).toEqual(["stem"]);
  });

  it("show what they have changed again if that is asked for", async () => {
    await start({ on: 2 });
    await page.sends({ type: "close", path: "head" });
    const told = await page.sends({ type: "reveal-pass", signature: signatureOf(1) });
    expect(page.opened).toEqual(["head", "stem"]);
    expect(focusIn(told)[0]!.boxes).toContain(page.boxOf("query_key_merged"));
  });

  it("are done when the graph cannot be laid out, which is said", async () => {
    await start();
    page.layouts.error = new Error("too much");
    kernel.switchTo(1);
    await settled();
    expect(page.error).toContain("too much");
    expect(page.get("passes").passes[0]!.on).toBe(true);
  });
});

describe("what is selected", () => {
  beforeEach(() => start());

  it("is seen in the closed box of an input or output that holds what serves it", async () => {
    await start({}, "llama");
    const boxes = (): [string, Box][] => Object.entries(page.get("picture").boxes);
    const hosted = boxes().filter(([, { kind, openable }]) => kind === "placeholder" && openable);
    expect(hosted.length).toBeGreaterThan(0);
    for (const [id, { node, path }] of hosted) {
      const { opened } = page;
      await page.sends(select(node!));
      expect(page.opened).toEqual(opened);
      expect(page.get("details").box).toBe(id);
      await page.sends({ type: "open", path });
      const inside = boxes().find(([, box]) => box.path === path && box.node && box.node !== node)!;
      await page.sends({ type: "close", path }, select(inside[1].node!));
      expect(page.opened).toContain(path);
    }
  });

  it("is described at once as far as that is known, and completely when the kernel answers", async () => {
    kernel.held.add("details");
    await page.sends(select("head_query"));
    const known = page.get("details");
    expect(known).toMatchObject({
      kind: "node",
      name: "head_query",
      subtitle: "call_module",
      box: page.boxOf("head_query"),
      isPartial: true,
    });
    expect(known.crumbs.map(({ path }) => path)).toEqual(["head"]);
    expect(known.users.map(({ name }) => name)).toEqual(["relu"]);
    kernel.release();
    await settled();
    expect(page.get("details")).toMatchObject({ name: "head_query", isPartial: false, parameters: [] });
    expect(page.get("details").fields.map(({ label }) => label)).toContain("FLOPs");
  });

  it("is asked about once, also while the kernel has not answered, and anew after a change", async () => {
    kernel.held.add("details");
    await page.sends(select("relu"));
    await page.sends({ type: "close", path: "stem" });
    await page.sends(select("relu"));
    kernel.release();
    await settled();
    await page.sends({ type: "clear-selection" });
    await page.sends(select("relu"), { type: "open", path: "stem" });
    expect(page.get("details").isPartial).toBe(false);
    expect(kernel.askedFor("details")).toHaveLength(1);
    kernel.switchTo(2);
    await settled();
    expect(page.get("details")).toMatchObject({ name: "relu", isPartial: false });
    expect(kernel.askedFor("details")).toHaveLength(2);
  });

  it("is asked about again if the kernel has failed to answer", async () => {
    kernel.failing.add("details");
    await page.sends(select("relu"));
    expect(page.get("details").isPartial).toBe(true);
    expect(page.error).toBe("");
    kernel.failing.clear();
    await page.sends(select("relu"));
    expect(page.get("details").isPartial).toBe(false);
  });

  it("keeps what is said of it from what has been selected meanwhile", async () => {
    kernel.held.add("details");
    await page.sends(select("relu"), select("mul"));
    kernel.release();
    await settled();
    expect(page.get("details")).toMatchObject({ name: "mul", isPartial: false });
  });

  it("stays hidden in its group unless it is to be shown", async () => {
    await page.sends({ type: "close", path: "head" });
    await page.sends(select("relu", false));
    expect(page.boxOf("relu")).toBeUndefined();
    expect(page.get("details").box).toBe(page.groupBox("head"));
    const [focus] = focusIn(await page.sends(select("relu")));
    expect(focus).toEqual({ type: "focus", boxes: [page.boxOf("relu")], gently: false, pane: 0 });
    expect(page.get("details").box).toBe(page.boxOf("relu"));
  });

  it("may be a group, or nothing", async () => {
    await page.sends({ type: "select-group", path: "head", pane: 0 });
    expect(page.get("details")).toMatchObject({ kind: "group", path: "head", subtitle: "Head" });
    expect(page.get("details").users.map(({ name }) => name)).toEqual(["truediv"]);
    await page.sends({ type: "clear-selection" });
    expect(page.get("details").kind).toBe("model");
    expect(kernel.state.view.selected).toBeNull();
  });

  it("stays when it is asked for something that is not there, which is said", async () => {
    await page.sends(select("mul"));
    await page.sends({ type: "select-group", path: "relu", pane: 0 });
    expect(page.error).toBe("Selecting the group failed: This stage has no group named relu.");
    await page.sends(select("nobody"));
    expect(page.error).toContain("This stage has no node named nobody.");
    expect(page.get("details").name).toBe("mul");
  });

  it("stays as long as its node does, and shows what passes did to it", async () => {
    await page.sends(select("stem_conv"));
    kernel.switchTo(1);
    await settled();
    expect(page.get("details")).toMatchObject({ name: "stem_conv", marks: [signatureOf(0)] });
    kernel.switchTo(0);
    await settled();
    await page.sends(select("stem_norm"));
    kernel.switchTo(1);
    await settled();
    expect(page.get("details").kind).toBe("model");
    expect(kernel.state.view.selected).toBeNull();
  });

  it("is known to nobody but its page", async () => {
    const other = await Page.of(new FakeKernel());
    await page.sends(select("mul"));
    expect(other.get("details").kind).toBe("model");
  });
});

describe("a search", () => {
  beforeEach(() => start());
  const search = async (query: string) => (await page.viewer.send({ type: "search", query })) as SearchAnswer;

  it("finds nodes by any of their words, in the graph as it is now", async () => {
    const found = await search("linear");
    expect(found).toMatchObject({ nodes: 2, total: 2, message: "" });
    expect(found.results.map(({ name }) => name)).toEqual(["head_query", "head_key"]);
    expect((await search("changed op:call_module")).total).toBe(0);
    kernel.switchTo(1);
    await settled();
    expect((await search("changed op:call_module")).results.map(({ name }) => name)).toEqual(["stem_conv"]);
  });

  it("finds groups by what they have too", async () => {
    const groups = async (query: string) =>
      (await search(query)).results.filter(({ kind }) => kind === "group").map(({ name }) => name);
    expect(await groups("module:head")).toEqual(["head"]);
    expect(await groups("class:Head")).toEqual(["head"]);
    expect(await groups("class:Head -head")).toEqual([]);
    expect(await groups("class:Head op:call_module")).toEqual([]);
    const all = await search("head");
    expect(all.total).toBeGreaterThan(all.nodes);
    expect(all.nodes).toBeGreaterThan(0);
  });

  it("says what it cannot answer among the results, in one line", async () => {
    expect(await search("inputs:nobody")).toMatchObject({
      ...{ results: [], total: 0, nodes: 0 },
      message: 'There is no node "nobody".',
    });
    expect(page.error).toBe("");
  });

  it.each(SAMPLE)("may be any text, and so may a filter: %#", async (query) => {
    const found = await search(query);
    expect(found.message === "" || found.total === 0).toBe(true);
    expect(found.message).not.toContain("\n");
    await page.sends({ type: "filter", query });
    expect(page.error).toBe("");
  });
});

describe("a filter", () => {
  beforeEach(() => start());
  const filter = (query: string) => page.sends({ type: "filter", query });
  const found = () => page.get("found");

  it("opens the groups of what it finds until it ends, names their boxes, and moves there", async () => {
    await page.sends({ type: "close", path: "head" });
    const told = await filter("linear");
    expect(page.opened).toEqual(["head", "stem"]);
    const boxes = ["head_query", "head_key"].map((name) => page.boxOf(name)!);
    expect(found()).toEqual({
      ...{ query: "linear", count: 2, message: "" },
      boxes: [{ [boxes[0]!]: 1, [boxes[1]!]: 1 }],
    });
    expect(focusIn(told)).toEqual([{ type: "focus", boxes, gently: false, pane: 0 }]);
    await filter("");
    expect(page.opened).toEqual(["stem"]);
    expect(found()).toBeNull();
  });

  it("moves gently where something is selected", async () => {
    await page.sends(select("mul"));
    expect(focusIn(await filter("linear"))[0]!.gently).toBe(true);
  });

  it("counts what is found in a closed group", async () => {
    await filter("linear");
    await page.sends({ type: "close", path: "head" });
    expect(found()).toMatchObject({ count: 2, boxes: [{ [page.groupBox("head")!]: 2 }] });
    expect(page.opened).toEqual(["stem"]);
  });

  it("opens groups within a budget", async () => {
    kernel.data.metrics.revealBudget = 1;
    await page.sends({ type: "close", path: "head" }, { type: "close", path: "stem" });
    await filter("linear");
    expect(page.opened).toEqual([]);
    expect(found()).toMatchObject({ boxes: [{ [page.groupBox("head")!]: 2 }] });
  });

  it("stays while groups and stages change, and is asked of each graph that is shown", async () => {
    await filter("by:fuse");
    expect(found()).toMatchObject({ query: "by:fuse", count: 0 });
    kernel.switchTo(1);
    await settled();
    expect(found()).toMatchObject({ count: 1, boxes: [{ [page.boxOf("stem_conv")!]: 1 }] });
    await page.sends({ type: "close", path: "head" });
    expect(found()).toMatchObject({ query: "by:fuse", count: 1 });
    await page.sends(showStage(0));
    expect(found()).toMatchObject({ query: "by:fuse", count: 0 });
  });

  it("keeps words about what cannot be answered, and works again later", async () => {
    await filter("downstream:query_key_merged");
    expect(found()).toMatchObject({ count: 0, message: 'There is no node "query_key_merged".' });
    kernel.switchTo(2);
    await settled();
    expect(found()).toMatchObject({ message: "" });
    expect((found() as { count: number }).count).toBeGreaterThan(1);
  });

  it("lights up both stages side by side, and moves to where something is found", async () => {
    kernel.switchTo(2);
    await settled();
    await page.sends(showStage(2, 0, true));
    await page.sends({ type: "close", path: "stem" }, { type: "close", path: "head" });
    await filter("op:call_module linear");
    expect(found()).toMatchObject({ count: 1, message: "" });
    expect(Object.keys((found() as NodesFound).boxes[1]!)).toHaveLength(2);
    const told = await filter("name:stem_norm");
    expect(found()).toMatchObject({ count: 0, boxes: [{}, { [page.boxOf("stem_norm", 1)!]: 1 }] });
    expect(focusIn(told)[0]!.pane).toBe(1);
  });

  it("that cannot be drawn leaves the one that was there", async () => {
    await filter("linear");
    await page.sends({ type: "close", path: "head" });
    page.layouts.error = new Error("too much");
    await filter("relu");
    expect(page.error).toBe("Filtering the graph failed: too much");
    page.layouts.error = null;
    await page.sends({ type: "open", path: "head" });
    expect(found()).toMatchObject({ query: "linear" });
    expect(kernel.state.view.query).toBe("linear");
  });
});

describe("stages", () => {
  beforeEach(() => start({ on: 2 }));

  it("are shown alone with the marks of passes, or compared with those of changes", async () => {
    expect(page.get("stages")).toMatchObject({ shown: 2, compared: "", before: null, comparisons: [0, 1] });
    expect(words()).toEqual(new Set([signatureOf(0), signatureOf(1)]));
    await page.sends(showStage(2, "below"));
    expect(page.get("stages")).toMatchObject({ shown: 2, compared: "below", before: 1, beside: false });
    for (const word of words()) expect(["added", "removed", "changed", "rewired"]).toContain(word);
    expect(page.get("picture").compared).toBe(true);
    await page.sends(showStage(2, 0));
    expect(page.get("stages")).toMatchObject({ compared: 0, before: 0 });
    expect(words()).toContain("removed");
    expect(drawn()).toContain("stem_norm");
    await page.sends(showStage(0));
    expect(words()).toEqual(new Set());
    expect(page.get("details").fields.find(({ label }) => label === "Passes on")!.value).toBe("none");
  });

  it("below one are all offered to compare it with, and each is shown", async () => {
    for (const [stage, before] of [
      [1, 0],
      [2, 0],
      [2, 1],
    ] as const)
      for (const beside of [false, true]) {
        await page.sends(showStage(stage, before, beside));
        expect(page.get("stages")).toMatchObject({
          ...{ shown: stage, compared: before, before, beside },
          comparisons: Array.from({ length: stage }, (_, i) => i),
        });
        expect(page.get("beside")).toHaveLength(beside ? 1 : 0);
      }
    expect(page.error).toBe("");
  });

  it("that have not arrived are asked for once", async () => {
    await page.sends(showStage(1));
    await page.sends(showStage(2));
    await page.sends(showStage(1));
    expect(kernel.askedFor("graph")).toEqual([
      { type: "graph", version: kernel.state.stages.version, stage: 1, before: null, beside: false },
    ]);
    expect(page.get("stages").shown).toBe(1);
  });

  it("that are on their way hold nothing else up", async () => {
    kernel.held.add("graph");
    const told = await page.sends(showStage(1), { type: "close", path: "head" }, select("stem_conv"));
    expect(page.get("stages").shown).toBe(2);
    expect(page.opened).toEqual(["stem"]);
    expect(page.get("details").name).toBe("stem_conv");
    expect(told.filter(({ type }) => type === "done")).toHaveLength(2);
    kernel.release();
    await settled();
    expect(page.get("stages").shown).toBe(1);
    expect(page.opened).toEqual(["stem"]);
    expect(page.get("details").name).toBe("stem_conv");
    expect(page.told.filter(({ type }) => type === "done")).toHaveLength(3);
  });

  it("that arrive late do not take the place of what was asked for after them", async () => {
    kernel.held.add("graph");
    await page.sends(showStage(1));
    await page.sends(showStage(2, "", false));
    kernel.release();
    await settled();
    expect(page.get("stages").shown).toBe(2);
  });

  it("that the session has no more when they arrive are not shown", async () => {
    kernel.held.add("graph");
    await page.sends(showStage(1, 0, true));
    kernel.switchTo(0);
    await settled();
    kernel.release();
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 0, beside: false });
    expect(page.get("beside")).toEqual([]);
  });

  it("that there are none of are no reason to leave the one that is shown", async () => {
    await page.sends(showStage(9));
    expect(page.error).toBe("Showing the stage failed: There is no stage 9.");
    await page.sends({ type: "show-node", name: "nobody", stage: 9 });
    expect(page.get("stages").shown).toBe(2);
  });

  it("are the last alone after a change", async () => {
    await page.sends(showStage(1, "below"));
    kernel.switchTo(1);
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 1, compared: "", before: null });
    await page.sends(showStage(0));
    kernel.switchTo(2);
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 2, compared: "" });
  });

  it("lead to a node that what is shown has not", async () => {
    await page.sends({ type: "show-node", name: "relu", stage: 0 });
    expect(page.get("stages").shown).toBe(2);
    expect(page.get("details").name).toBe("relu");
    await page.sends({ type: "show-node", name: "stem_norm", stage: 0 });
    expect(page.get("stages").shown).toBe(0);
    expect(page.get("details").name).toBe("stem_norm");
  });

  it("keep their comparison when a node leads to another", async () => {
    await page.sends(showStage(2, "below", true));
    await page.sends({ type: "show-node", name: "stem_norm", stage: 1 });
    expect(page.get("stages")).toMatchObject({ shown: 1, compared: "below", before: 0, beside: true });
    expect(page.get("details")).toMatchObject({ name: "stem_norm", pane: 1 });
  });
});

describe("two stages side by side", () => {
  beforeEach(async () => {
    await start({ on: 2 });
    await page.sends(showStage(2, 0, true));
  });

  it("have each its own nodes, and what became of them", () => {
    expect(drawn()).toContain("query_key_merged");
    expect(drawn()).not.toContain("stem_norm");
    expect(drawn(1)).toContain("stem_norm");
    expect(drawn(1)).not.toContain("query_key_merged");
    expect(words()).toContain("added");
    expect(words()).not.toContain("removed");
    expect(words(1)).toContain("removed");
    expect(words(1)).not.toContain("added");
  });

  it("open and close the same groups", async () => {
    await page.sends({ type: "close", path: "head" });
    expect(drawn()).not.toContain("relu");
    expect(drawn(1)).not.toContain("relu");
    page.layouts.error = new Error("too much");
    await page.sends({ type: "open", path: "head" });
    page.layouts.error = null;
    await page.sends({ type: "close", path: "stem" });
    for (const pane of [0, 1]) expect(drawn(pane)).not.toContain("relu");
    await page.sends({ type: "open", path: "head" });
    expect(drawn()).toContain("relu");
    expect(drawn(1)).toContain("relu");
  });

  it("name what stands for a node, and a group, on the other side", async () => {
    const counterparts = () => page.get("details").counterparts!.flat();
    await page.sends(select("stem_norm", false, 1));
    expect(counterparts()).toEqual([page.boxOf("stem_conv")]);
    await page.sends(select("stem_conv"));
    expect(counterparts()).toEqual([page.boxOf("stem_conv", 1), page.boxOf("stem_norm", 1)]);
    await page.sends(select("query_key_merged"));
    expect(counterparts()).toEqual([page.boxOf("head_query", 1), page.boxOf("head_key", 1)]);
    await page.sends(select("head_key", false, 1));
    expect(counterparts()).toEqual([page.boxOf("head_key"), page.boxOf("query_key_merged")]);
    await page.sends(select("relu"));
    await page.sends({ type: "close", path: "head" });
    expect(counterparts()).toEqual([page.groupBox("head")]);
    for (const pane of [0, 1]) {
      await page.sends({ type: "select-group", path: "stem", pane });
      expect(counterparts()).toEqual([page.groupBox("stem")]);
      const nodes = page.get("details").fields.find(({ label }) => label === "Nodes")!.value;
      expect(nodes).toBe(pane ? "3" : "2");
    }
  });

  it("show a node together with what stands for it", async () => {
    await page.sends({ type: "close", path: "head" });
    const told = await page.sends(select("head_query", true, 1));
    expect(focusIn(told)).toEqual([
      { type: "focus", boxes: [page.boxOf("head_query", 1)], gently: false, pane: 1 },
    ]);
    expect(page.boxOf("query_key_merged")).toBeDefined();
  });

  it("find a node that is gone on the side that has it", async () => {
    await page.sends(select("stem_norm"));
    expect(page.get("details")).toMatchObject({ name: "stem_norm", pane: 1 });
    expect(kernel.state.view.selected).toEqual({ kind: "node", name: "stem_norm", pane: 1 });
  });

  it("open what is different between them", async () => {
    await page.sends(showStage(2));
    await page.sends({ type: "close", path: "head" }, { type: "close", path: "stem" });
    await page.sends(showStage(2, 0, true));
    expect(page.opened, "a check that a pass has added is a mark on the input").toEqual(["head", "stem"]);
    await page.sends(showStage(2));
    expect(page.opened).toEqual([]);
  });

  it("stay while there are two, and so does what is selected in the earlier one", async () => {
    await page.sends(select("stem_norm", false, 1));
    kernel.switchTo(1);
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 1, before: 0, beside: true });
    expect(page.get("details")).toMatchObject({ name: "stem_norm", pane: 1 });
    kernel.switchTo(0);
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 0, before: null, beside: false });
    expect(page.get("beside")).toEqual([]);
    expect(page.get("details").kind).toBe("model");
  });

  it("forget what is selected in the earlier one when they become one graph", async () => {
    await page.sends(select("stem_norm", false, 1));
    await page.sends(showStage(2, 0, false));
    expect(page.get("details").kind).toBe("model");
  });
});

describe("three stages in a row", () => {
  beforeEach(async () => {
    await start({ on: 2 });
    await page.sends(showStage(2, 0, true, [1]));
  });

  it("ask for each pair once, and are the view that is kept", async () => {
    const asked = kernel
      .askedFor("graph")
      .map((message) => message.type === "graph" && [message.stage, message.before]);
    expect(asked).toEqual([
      [1, 0],
      [2, 1],
    ]);
    expect(page.get("stages")).toMatchObject({ row: [0, 1, 2], between: [1], addable: [], compared: 0 });
    expect(kernel.state.view).toMatchObject({ compared: 0, beside: true, between: [1] });
    expect(page.get("beside")).toHaveLength(2);
  });

  it("mark in the middle what differs from either side", () => {
    const norm = page.get("picture").signatures;
    expect(norm).toEqual(["added", "removed", "changed", "rewired"]);
    const marks = (name: string, pane: number): string[] =>
      page.picture(pane).boxes[page.boxOf(name, pane)!]!.marks.map((mark) => norm[mark]!);
    expect(marks("stem_norm", 1)).toEqual(["removed"]);
    expect(marks("stem_conv", 2)).toEqual(["changed"]);
    expect(marks("head_query", 2)).toEqual(["changed"]);
    expect(marks("query_key_merged", 0)).toEqual(["added"]);
  });

  it("light up in each what stands for a node of any", async () => {
    await page.sends(select("query_key_merged"));
    const both = (pane: number) => ["head_query", "head_key"].map((name) => page.boxOf(name, pane)!);
    expect(page.get("details").counterparts).toEqual([[], both(1), both(2)]);
    await page.sends(select("stem_norm", true, 1));
    expect(page.get("details").counterparts).toEqual([
      [page.boxOf("stem_conv")],
      [],
      [page.boxOf("stem_conv", 2)],
    ]);
    await page.sends(select("head_key", true, 2));
    expect(page.get("details")).toMatchObject({ name: "head_key", pane: 2 });
    expect(page.get("details").counterparts![0]).toContain(page.boxOf("query_key_merged"));
  });

  it("lose the one that is gone from the session, and go on", async () => {
    kernel.switchTo(1);
    await settled();
    expect(page.get("stages")).toMatchObject({ row: [0, 1], between: [] });
    kernel.look({ stage: 2, compared: 0, beside: true, between: [1] });
    await settled();
    expect(page.get("stages").row).toEqual([0, 1]);
    expect(page.error).toBe("Showing the change failed: There is no stage 2.");
  });

  it("are those that a report has the pairs of", async () => {
    kernel.isFixed = true;
    const { pairs } = kernel.state.stages;
    kernel.state.stages = {
      ...kernel.state.stages,
      pairs: { "2/0": pairs["2/0"] ?? 0, "2/1": pairs["2/1"]! },
    };
    await page.sends(showStage(2, 0, true, [1]));
    expect(page.get("stages")).toMatchObject({ row: [0, 2], addable: [] });
  });
});

describe("a preview", () => {
  beforeEach(() => start());

  it("is one graph with what would change, moves there, and leaves no trace", async () => {
    const first = page.get("picture");
    const told = page.told.length;
    kernel.preview("fuse");
    await settled();
    expect(page.get("stages").preview!.name).toContain("Fuse");
    expect(page.get("picture")).toMatchObject({ compared: true, preview: true });
    expect(words()).toContain("removed");
    expect(focusIn(page.told.slice(told))[0]).toMatchObject({ gently: true });
    kernel.preview(null);
    await settled();
    expect(page.get("picture")).toEqual(first);
    expect(page.get("stages").preview).toBeNull();
  });

  it("takes the place of another", async () => {
    kernel.preview("fuse");
    kernel.preview("merge");
    await settled();
    expect(page.get("stages").preview!.name).toContain("Merge");
    expect(drawn()).toContain("query_key_merged");
    expect(words()).not.toContain("removed");
  });

  it("takes with it the selection of a node that it alone has", async () => {
    kernel.preview("merge");
    await settled();
    await page.sends(select("query_key_merged"));
    expect(page.get("details").name).toBe("query_key_merged");
    kernel.preview(null);
    await settled();
    expect(page.get("details").kind).toBe("model");
  });

  it("ends with the stages that were looked at before", async () => {
    kernel.switchTo(2);
    await settled();
    await page.sends(showStage(1, 0, true));
    const { version } = kernel.state.stages;
    kernel.put("stages", {
      ...kernel.state.stages,
      preview: { signature: "s", name: "Other", text: "", graph: kernel.state.stages.alone["2"]! },
    });
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 2, beside: false });
    expect(page.get("beside")).toEqual([]);
    kernel.preview(null);
    await settled();
    expect(kernel.state.stages.version).toBe(version);
    expect(page.get("stages")).toMatchObject({ shown: 1, compared: 0, before: 0, beside: true });
  });
});

describe("overlays", () => {
  beforeEach(() => start({ on: 2 }));
  const choose = (name: string) => page.sends({ type: "show-overlay", name });
  const overlay = () => page.get("overlays").overlay;

  it("are asked for when they are missing, and once", async () => {
    await choose("sum");
    await choose("");
    expect(overlay()).toBeNull();
    await choose("sum");
    expect(kernel.askedFor("overlay")).toEqual([{ type: "overlay", graph: 4, name: "sum" }]);
    const values = Object.keys(overlay()!.values);
    expect(values.sort()).toEqual(
      Object.entries(page.get("picture").boxes)
        .filter(([, { kind }]) => kind !== "chip")
        .map(([id]) => id)
        .sort(),
    );
    expect(kernel.state.view.overlay).toBe("sum");
  });

  it("have the same total whether groups are open or closed", async () => {
    await choose("sum");
    const { total } = overlay()!;
    await page.sends({ type: "close", path: "head" }, { type: "close", path: "stem" });
    const sum = Object.values(overlay()!.values).reduce<number>((all, value) => all + Number(value), 0);
    expect(sum).toBe(total);
    expect(overlay()!.total).toBe(total);
  });

  it("that cannot be measured leave the one that was there", async () => {
    await choose("sum");
    kernel.failing.add("overlay");
    await choose("max");
    expect(overlay()!.name).toBe("sum");
    expect(kernel.state.view.overlay).toBe("sum");
  });

  it("are measured anew for another stage, and go if that fails", async () => {
    await choose("sum");
    kernel.switchTo(1);
    await settled();
    expect(overlay()!.name).toBe("sum");
    expect(kernel.askedFor("overlay")).toHaveLength(2);
    kernel.failing.add("overlay");
    kernel.switchTo(0);
    await settled();
    expect(overlay()).toBeNull();
  });

  it("are those of each side", async () => {
    await page.sends(showStage(2, 0, true));
    await choose("sum");
    const { overlay: shown, beside } = page.get("overlays");
    expect(shown!.total).not.toBe(beside[0]!.total);
    expect(beside[0]!.values[page.boxOf("stem_norm", 1)!]).toBeDefined();
    expect(kernel.askedFor("overlay").map((message) => "graph" in message && message.graph)).toEqual([4, 0]);
  });

  it("hold up nothing while they are measured", async () => {
    kernel.held.add("overlay");
    await choose("sum");
    await page.sends({ type: "close", path: "head" });
    expect(page.opened).toEqual(["stem"]);
    kernel.release();
    await settled();
    expect(overlay()!.values[page.groupBox("head")!]).toBeDefined();
  });
});

describe("a kernel that is busy", () => {
  it("leaves everything working that needs no answer", async () => {
    await start({ on: 2 });
    for (const type of ["details", "graph", "overlay", "toggle", "file"] as const) kernel.held.add(type);
    const signature = signatureOf(0);
    await page.sends({ type: "toggle", signature, on: false });
    await page.sends({ type: "export-file", suffix: "pdf" });
    await page.sends(select("stem_conv"), { type: "show-overlay", name: "sum" }, showStage(0));
    const told = await page.sends(
      { type: "close", path: "head" },
      { type: "filter", query: "name:conv" },
      { type: "search", query: "relu" },
    );
    expect(page.opened).toEqual(["stem"]);
    expect(page.get("found")).toMatchObject({ count: 1 });
    expect(told.at(-1)).toMatchObject({ type: "done", value: { message: "" } });
    expect(page.get("details")).toMatchObject({ name: "stem_conv", isPartial: true });
    expect(page.error).toBe("");
  });
});

describe("a kernel that is gone", () => {
  it("is said to be gone by who asks it, and all else works", async () => {
    await start({ on: 2 });
    kernel.isGone = true;
    expect(() => page.viewer.send({ type: "toggle", signature: signatureOf(0), on: false })).toThrow();
    expect(() => page.viewer.send({ type: "export-file", suffix: "dot" })).toThrow();
    await page.sends({ type: "close", path: "head" });
    await page.sends(select("relu"));
    expect(page.get("details")).toMatchObject({ name: "relu", isPartial: true });
    expect(page.opened).toEqual(["head", "stem"]);
    await page.sends({ type: "filter", query: "op:call_module linear" });
    expect(page.get("found")).toMatchObject({ count: 1 });
    expect(page.error).toBe("");
    await page.sends(showStage(0));
    expect(page.error).toContain("Showing the stage failed");
    expect(page.get("stages").shown).toBe(2);
    await page.sends({ type: "show-overlay", name: "sum" });
    expect(page.error).toContain("Showing the overlay failed");
  });
});

describe("the view of a script", () => {
  it("is shown at first", async () => {
    await start({ on: 2, view: { stage: 1, opened: ["stem"], query: "name:conv", overlay: "sum" } });
    expect(page.get("stages").shown).toBe(1);
    expect(page.opened).toEqual(["stem"]);
    expect(page.get("found")).toMatchObject({ query: "name:conv", count: 1 });
    expect(page.get("overlays").overlay!.name).toBe("sum");
  });

  it("is taken over and kept", async () => {
    await start({ on: 2 });
    kernel.look({
      ...{ stage: 2, compared: 0, beside: true, opened: ["stem"], query: "name:conv", overlay: "sum" },
      selected: { kind: "node", name: "stem_norm", pane: 1 },
    });
    await settled();
    expect(page.get("stages")).toMatchObject({ shown: 2, compared: 0, beside: true });
    expect(page.opened).toEqual(["stem"]);
    expect(page.get("found")).toMatchObject({ query: "name:conv" });
    expect(page.get("overlays").overlay!.name).toBe("sum");
    expect(page.get("details")).toMatchObject({ name: "stem_norm", pane: 1 });
    expect(kernel.state.view).toEqual({
      ...PLAIN,
      ...{
        stage: null,
        compared: 0,
        beside: true,
        between: [],
        opened: ["stem"],
        query: "name:conv",
        overlay: "sum",
      },
      selected: { kind: "node", name: "stem_norm", pane: 1 },
    });
    kernel.look({ selected: null, query: "", overlay: "" });
    await settled();
    expect(page.get("details").kind).toBe("model");
    expect(page.get("found")).toBeNull();
    expect(page.get("overlays").overlay).toBeNull();
  });

  it("changes nothing else, whatever the kernel has not heard of yet", async () => {
    await start();
    const known = kernel.state.view;
    expect(page.opened).toContain("head");
    await page.sends({ type: "close", path: "head" });
    kernel.look({ overlay: "sum" }, known);
    await settled();
    expect(page.get("overlays").overlay!.name).toBe("sum");
    expect(page.opened).not.toContain("head");
    expect(kernel.state.view.opened).not.toContain("head");
  });

  it("shows a node that is hidden", async () => {
    await start();
    await page.sends({ type: "close", path: "head" });
    kernel.look({ selected: { kind: "node", name: "relu", pane: 0 } });
    await settled();
    expect(page.get("details").box).toBe(page.boxOf("relu"));
  });

  it("is not what a person has gone on to do meanwhile", async () => {
    await start();
    kernel.look({ opened: [] });
    page.viewer.send({ type: "open", path: "stem" });
    await settled();
    const { opened } = page;
    const drawings = page.layouts.outlines.length;
    await settled();
    expect(page.layouts.outlines.length, "nobody goes on for ever").toBe(drawings);
    expect(kernel.state.view.opened!.sort()).toEqual(opened);
  });
});

describe("the arrangement", () => {
  const outlined = (): string => page.layouts.outlines.at(-1)!;

  it("leads lines to the right, and says what flows along them", async () => {
    await start();
    await page.sends({ type: "arrange", arrangement: { direction: "right" } });
    expect(outlined()).toContain('rankdir="LR"');
    expect(page.get("picture").svg).not.toContain("fx-flow");
    await page.sends({ type: "arrange", arrangement: { shapes: true } });
    expect(page.get("arrangement")).toEqual({ ...PLAIN, direction: "right", shapes: true });
    const { svg, edges } = page.get("picture");
    const said = [...svg.matchAll(/class="fx-flow"[^>]*>([^<]*)</g)].map(([, words]) => words);
    expect(said.sort()).toEqual(
      Object.values(edges)
        .map(({ label }) => label)
        .filter(Boolean)
        .sort(),
    );
    expect(said.length).toBeGreaterThan(0);
    expect(kernel.state.view).toMatchObject({ direction: "right", shapes: true });
    await page.sends({ type: "arrange", arrangement: PLAIN });
    expect(outlined()).toContain('rankdir="TB"');
  });

  it("shows all bookkeeping, in each stage, until it is hidden", async () => {
    await start({ on: 2 }, "bert");
    const groups = (): string[] => page.opened.filter((path) => path.includes("#"));
    expect(groups()).toEqual([]);
    await page.sends({ type: "arrange", arrangement: { bookkeeping: true } });
    expect(groups().length).toBeGreaterThan(1);
    await page.sends(showStage(0));
    expect(groups().length).toBeGreaterThan(1);
    await page.sends({ type: "arrange", arrangement: { bookkeeping: false } });
    expect(groups()).toEqual([]);
    expect(kernel.state.view.bookkeeping).toBe(false);
  });

  it("is that of a script, and of a view that was kept", async () => {
    await start({ view: { direction: "right" } });
    expect(outlined()).toContain('rankdir="LR"');
    kernel.look({ direction: "down", shapes: true });
    await settled();
    expect(page.get("arrangement")).toEqual({ ...PLAIN, shapes: true });
  });

  it("opens and closes level by level", async () => {
    await start({}, "bert");
    await page.sends({ type: "close-level" }, { type: "close-level" }, { type: "close-level" });
    expect(page.opened).toEqual([]);
    await page.sends({ type: "open-level" });
    const first = page.opened;
    expect(first).toContain("encoder");
    expect(first.some((path) => path.includes("#"))).toBe(false);
    await page.sends({ type: "open-level" });
    expect(page.opened.length).toBeGreaterThan(first.length);
    await page.sends({ type: "close-level" });
    expect(page.opened).toEqual(first);
  });
});

describe("a large graph", () => {
  beforeEach(() => start({ inParts: true }, "llama"));

  it("is shown before all of it has arrived, and completed part by part", async () => {
    kernel = new FakeKernel(vectorsOf("llama"), { inParts: true });
    kernel.held.add("rest");
    page = await Page.of(kernel);
    const closed = kernel.data.trees.filter(({ children }) => children === null).map(({ path }) => path);
    expect(closed.length).toBeGreaterThan(0);
    await page.sends({ type: "open", path: closed[0]! });
    expect(page.error).toContain("has not arrived yet");
    const found = await page.sends({ type: "search", query: "linear" });
    expect(found.at(-1)).toMatchObject({
      value: { message: "Only the part that has arrived was searched." },
    });
    kernel.release();
    await settled();
    await page.sends({ type: "open", path: closed[0]! });
    expect(page.opened).toContain(closed[0]);
    const all = await page.sends({ type: "search", query: "linear" });
    expect(all.at(-1)).toMatchObject({ value: { message: "" } });
    const parts = vectorsOf("llama").steps.filter((step) => step.do.startsWith("rest"));
    expect(kernel.askedFor("rest").length).toBe(parts.length);
  });

  it("keeps what is selected and lit up when the rest arrives", async () => {
    kernel = new FakeKernel(vectorsOf("llama"), { inParts: true });
    kernel.held.add("rest");
    page = await Page.of(kernel);
    await page.sends(select("embed_tokens"), { type: "filter", query: "op:call_module" });
    const { count } = page.get("found") as { count: number };
    kernel.release();
    await settled();
    expect(page.get("details").name).toBe("embed_tokens");
    expect((page.get("found") as { count: number }).count).toBeGreaterThan(count);
  });
});

describe("candidates", () => {
  const looking = (): number =>
    page.get("passes").passes.filter(({ isLooking }: { isLooking: boolean }) => isLooking).length;

  it("are looked for pass by pass, once the graph is drawn, and others are answered between", async () => {
    kernel = new FakeKernel(vectorsOf("conv"));
    kernel.forgetCandidates();
    kernel.held.add("candidates");
    page = await Page.of(kernel);
    const all = looking();
    expect(all).toBeGreaterThan(1);
    expect(drawn().length, "the picture comes first").toBeGreaterThan(0);
    expect(kernel.askedFor("candidates").length).toBe(1);
    await page.sends({ type: "open", path: "head" });
    expect(page.error).toBe("");
    kernel.release();
    for (let i = 0; i < all; i += 1) await settled();
    expect(looking()).toBe(0);
    expect(kernel.askedFor("candidates").length).toBe(all);
  });

  it("are looked for anew where passes were switched while the last were on their way", async () => {
    kernel = new FakeKernel(vectorsOf("conv"));
    kernel.forgetCandidates();
    const all = kernel.state.passes.passes.length;
    let isSwitched = false;
    kernel.ready = async () => {
      if (isSwitched || kernel.askedFor("candidates").length < all) return;
      isSwitched = true;
      kernel.forgetCandidates();
      kernel.tell("passes");
    };
    page = await Page.of(kernel);
    for (let i = 0; i < 2 * all; i += 1) await settled();
    expect([looking(), isSwitched]).toEqual([0, true]);
  });

  it("are not looked for again where all are known, nor in a report", async () => {
    await start({ on: 1 });
    await page.sends(showStage(0));
    expect(kernel.askedFor("candidates")).toEqual([]);
    kernel = new FakeKernel(vectorsOf("conv"));
    kernel.forgetCandidates();
    kernel.isFixed = true;
    page = await Page.of(kernel);
    expect(kernel.askedFor("candidates")).toEqual([]);
  });

  it("that cannot be looked for leave the page as it is", async () => {
    kernel = new FakeKernel(vectorsOf("conv"));
    kernel.forgetCandidates();
    kernel.failing.add("candidates");
    page = await Page.of(kernel);
    expect(kernel.askedFor("candidates").length).toBe(1);
    expect(looking()).toBe(0);
    expect(page.get("passes").passes[0]!.note).toContain("the kernel did not answer");
    await page.sends({ type: "open", path: "head" });
    expect(page.error).toBe("");
  });
});

describe("what became of a node where stages are compared", () => {
  it("is no pass that changed it", async () => {
    await start({ on: 2 });
    await page.sends(showStage(2, 0));
    await page.sends(select("stem_norm"));
    expect(page.get("details")).toMatchObject({ name: "stem_norm", marks: [], became: ["removed"] });
    await page.sends({ type: "select-group", path: "stem", pane: 0 });
    expect(page.get("details").marks).toEqual([signatureOf(0)]);
    expect(page.get("details").became).toContain("removed");
    await page.sends(showStage(2));
    await page.sends(select("stem_conv"));
    expect(page.get("details").became).toBeUndefined();
    expect(page.get("details").marks).toEqual([signatureOf(0)]);
  });
});

describe("the number of a pass", () => {
  it("is that of its stage in every picture", async () => {
    await start({ on: 2 });
    const { passes } = page.get("passes");
    const numbersOf = (): (number | null)[] => {
      const { signatures, numbers } = page.get("picture");
      return passes.map(
        ({ signature }: { signature: string }) => numbers[signatures.indexOf(signature)] ?? null,
      );
    };
    expect(numbersOf().slice(0, 2)).toEqual([1, 2]);
    await page.sends(showStage(1));
    expect(numbersOf()[0]).toBe(1);
  });
});

describe("graphs that are written anew", () => {
  it("take the place of those that were there, and groups stay open", async () => {
    await start({ on: 1 });
    await page.sends({ type: "close", path: "head" }, select("stem_conv"));
    const first = page.get("picture");
    kernel.writeAnew(vectorsOf("conv"));
    expect(kernel.data).toBeInstanceOf(Data);
    kernel.put("stages", { ...kernel.state.stages, version: 50 });
    await settled();
    expect(page.get("picture")).toEqual(first);
    expect(page.get("picture")).not.toBe(first);
    expect(page.get("details")).toMatchObject({ name: "stem_conv", isPartial: false });
    kernel.data.trees.length = 0;
    await page.sends({ type: "open", path: "head" });
    expect(page.opened).toEqual(["head", "stem"]);
  });
});

describe("what only the kernel can do", () => {
  it("may fail, and the page is as it was", async () => {
    await start();
    const first = page.get("picture");
    kernel.failing.add("preview").add("toggle");
    const signature = signatureOf(0);
    const told = await page.sends({ type: "preview", signature }, { type: "toggle", signature, on: true });
    expect(told).toEqual([
      { type: "done", value: null },
      { type: "done", value: null },
    ]);
    expect(page.get("picture")).toBe(first);
    expect(page.error).toBe("");
  });
});

describe("a report", () => {
  beforeEach(async () => {
    kernel = new FakeKernel(vectorsOf("shared"), { on: 2 });
    kernel.isFixed = true;
    page = await Page.of(kernel);
  });

  it("begins at the nodes of the last pass that changed some", () => {
    const focused = page.told.find((message) => message.type === "focus");
    const { passes } = page.get("passes");
    const last = passes.findLast(({ on }) => on)!;
    const boxes = focused?.type === "focus" ? focused.boxes : [];
    const marked = Object.entries(page.get("picture").boxes).filter(([, { marks }]) =>
      marks.some((mark) => page.get("picture").signatures[mark] === last.signature),
    );
    expect(boxes.length).toBeGreaterThan(0);
    expect(marked.map(([id]) => id)).toEqual(expect.arrayContaining(boxes));
  });

  it("says all of a node without being asked", async () => {
    await page.sends(select("embed"));
    const { parameters, isPartial } = page.get("details");
    expect(isPartial).toBe(false);
    expect(parameters!.map(({ name }) => name)).toContain("weight");
    expect(kernel.asked).toEqual([]);
  });

  it("has the stages and overlays that were written", async () => {
    await page.sends(showStage(0));
    expect(page.error).toBe("Showing the stage failed: There is no stage 0.");
    expect(page.get("stages")).toMatchObject({ shown: 2, comparisons: [] });
    expect(page.get("overlays").offered).toEqual([]);
    expect(kernel.asked).toEqual([]);
  });
});

describe("whatever is done", () => {
  it.each([1, 2, 3, 4])("the page shows nodes of its stages, and comes to rest: %i", async (seed) => {
    await start({ on: 2 });
    let state = seed;
    const any = <T>(items: readonly T[]): T => {
      state = (state * 1103515245 + 12345) % 2 ** 31;
      return items[(state >> 8) % items.length]!;
    };
    const actions = [
      () => page.viewer.send({ type: any(["open", "close"]), path: any(["head", "stem"]) }),
      () => page.viewer.send({ type: "overview" }),
      () => page.viewer.send(select(any(["relu", "stem_norm", "query_key_merged"]), any([true, false]))),
      () => page.viewer.send({ type: "filter", query: any(["linear", "", "changed", "op:"]) }),
      () => page.viewer.send(showStage(any([0, 1, 2]), any(["", "below"]), any([true, false]))),
      () => page.viewer.send({ type: "show-overlay", name: any(["sum", "", "max"]) }),
      () => kernel.switchTo(any([0, 1, 2])),
      () => kernel.look({ opened: any([[], ["head"], ["stem", "head"]]), query: any(["", "relu"]) }),
      () => settled(),
    ];
    for (let i = 0; i < 60; i += 1) await any(actions)();
    kernel.switchTo(2);
    await settled();
    const { shown, before, beside, compared } = page.get("stages");
    expect(shown).toBe(2);
    const nodesOf = (stage: number): Set<string> => {
      const { state: known, data } = new FakeKernel(vectorsOf("conv"), { on: stage });
      return new Set(new Scene(data, known.stages.alone[stage]!, () => []).nodes.keys());
    };
    const [own, others] = [nodesOf(2), nodesOf(before ?? 2)];
    for (const name of drawn())
      expect(own.has(name) || (!beside && compared !== "" && others.has(name))).toBe(true);
    if (beside) for (const name of drawn(1)) expect(others.has(name)).toBe(true);
    const drawings = page.layouts.outlines.length;
    await settled();
    expect(page.layouts.outlines.length).toBe(drawings);
  });
});
