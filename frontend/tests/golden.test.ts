/** What the page makes of a graph is what Python makes of it. */

import { describe, expect, it } from "vitest";
import { cellText, percent, withUnit } from "../src/base/format";
import { LineStyles } from "../src/viewer/drawing/lines";
import { Data } from "../src/viewer/graphs/data";
import { placeBoxes } from "../src/viewer/drawing/boxes";
import { outline } from "../src/viewer/drawing/dot";
import { Graphs } from "../src/viewer/graphs/graphs";
import type { Hierarchy } from "../src/viewer/graphs/hierarchy";
import { View } from "../src/viewer/graphs/view";
import {
  dataOf,
  FOUND,
  MODELS,
  NUMBERS,
  numbersIn,
  passesOf,
  pathsOf,
  QUERIES,
  shortName,
  vectorsOf,
  type GoldenView,
  type Vectors,
} from "./golden";
import type { Cell } from "../src/base/wire";
import { PLAIN } from "../src/viewer/graphs/panes";
import { overlayOn } from "../src/viewer/overlays";

const DIGITS = 9;

it("there are vectors", () => {
  expect(MODELS).toContain("hostile");
  expect(QUERIES.all.length).toBeGreaterThan(60);
});

it.each(NUMBERS)("%d %s is written as Python writes it", (value, unit, text) => {
  expect(unit === "%" ? percent(value) : withUnit(value, unit)).toBe(text);
});

it("numbers that are none have words", () => {
  const none = [NaN, Infinity, -Infinity];
  expect(none.map((value) => withUnit(value))).toEqual(["NaN", "∞", "−∞"]);
  expect(["nan", "inf", "-inf"].map((cell) => cellText(cell, "number"))).toEqual(["NaN", "∞", "−∞"]);
});

describe.each(MODELS)("of %s", (name) => {
  const vectors = vectorsOf(name);
  const data = dataOf(vectors);
  const graphs = new Graphs(data, () => passesOf(vectors));
  const LAST = 1;
  const last = (): Hierarchy => graphs.scene(vectors.graphs[LAST]!.graph).hierarchy;

  // Of some models, searches are not kept.
  it.each(
    vectors.graphs.flatMap(({ graph }) => (FOUND[name] ? [[graph, FOUND[name][graph]!] as const] : [])),
  )("graph %i: each query finds its nodes, or says why there are none", (graph, found) => {
    const { search, hierarchy } = graphs.scene(graph);
    const queries = found.length === QUERIES.all.length ? QUERIES.all : QUERIES.few;
    const answers = queries.map((query) => {
      try {
        return { query, names: search.names(query) };
      } catch (error) {
        return { query, error: (error as Error).message };
      }
    });
    const names = hierarchy.nodes.map((node) => node.name);
    const expected = queries.map((query, i) => {
      const answer = found[i]!;
      if (typeof answer !== "string") return { query, error: answer.error };
      return { query, names: numbersIn(answer).map((position) => names[position]) };
    });
    expect(answers).toEqual(expected);
  });

  it.each(vectors.graphs.flatMap(({ graph, views }) => views.map((view, i) => [graph, i, view] as const)))(
    "graph %i: the same is visible in view %i, and is laid out by the same outline",
    (graph, _, expected) => {
      const { hierarchy } = graphs.scene(graph);
      const paths = pathsOf(hierarchy);
      const opened = new Set(numbersIn(expected.opened).map((number) => paths[number]!));
      expectView(new View(hierarchy, opened, data.metrics), expected, vectors, data);
    },
  );

  it.each(vectors.heads)("lines lead $direction, shapes said: $shapes", ({ head, ...arrangement }) => {
    const view = new View(graphs.scene(0).hierarchy, new Set(), data.metrics);
    const written = outline(view, placeBoxes(view, data), { ...PLAIN, ...arrangement });
    expect(written.split("\n").slice(0, head.length)).toEqual(head);
  });

  it("two stages side by side are the same, and so is what stands for a node in the other", () => {
    const { pair, sides, counterparts } = vectors.pair;
    const bare = graphs.panesOf([pair], new Map());
    const opened = bare.all.flatMap(({ scene }, i) => {
      const paths = pathsOf(scene.hierarchy);
      return numbersIn(sides[i]!.opened).map((number) => paths[number]!);
    });
    const panes = graphs.panesOf([pair], new Map(opened.map((path) => [path, ""])));
    panes.all.forEach(({ view }, i) => expectView(view, sides[i]!, vectors, data));
    const after = panes.scene.hierarchy.nodes.map((node) => node.name);
    expect(after.map((node) => panes.counterparts!.of([node], 1, 0).sort())).toEqual(
      counterparts.map((names) => names.sort()),
    );
  });

  it("groups have the same values of overlays", () => {
    const { graph } = vectors.graphs[LAST]!;
    const everything = new Map(pathsOf(last()).map((path) => [path, ""]));
    for (const { name: overlay, values, total } of vectors.overlays) {
      const measured = data.overlays.find((known) => known.graph === graph && known.name === overlay)!;
      const found: Record<string, Cell> = {};
      for (const opened of [new Map<string, string>(), everything]) {
        const panes = graphs.panesOf(graph, opened);
        const said = overlayOn(measured, panes.scene, panes.shown);
        Object.assign(found, said.values);
        expect(rounded(said.total), overlay).toEqual(rounded(total));
      }
      for (const [id, value] of Object.entries(values))
        expect(rounded(found[id] ?? null), `${overlay} of ${id}`).toEqual(rounded(value));
    }
  });

  it("a group opens and closes with the same others", () => {
    const [{ overview, walks, closed, revealed }] = vectors.hierarchies;
    const { graph } = vectors.graphs[LAST]!;
    const paths = pathsOf(last());
    const panesWith = (numbers: number[]) =>
      graphs.panesOf(graph, new Map(numbers.map((number) => [paths[number]!, ""])));
    const said = ({ opened }: { opened: ReadonlyMap<string, string> }): number[] =>
      [...opened.keys()].map((path) => paths.indexOf(path)).sort((a, b) => a - b);
    const all = panesWith([...paths.keys()].slice(1));
    expect([...data.graphs[graph]!.overview].sort()).toEqual(
      numbersIn(overview)
        .map((number) => paths[number]!)
        .sort(),
    );
    const changed = last().nodes.flatMap(({ name, marks }) => (marks.length > 0 ? [name] : []));
    [panesWith(numbersIn(overview)), panesWith([])].forEach((panes, i) =>
      expect(said(panes.reveal(changed, 0, "pass")), "opened for what has changed").toEqual(
        numbersIn(revealed[i]!),
      ),
    );
    paths.slice(1).forEach((path, i) => {
      const [opened, without] = walks[i]!.map(numbersIn);
      expect(said(panesWith(numbersIn(overview)).open(path)), `${path} opened in the overview`).toEqual(
        opened,
      );
      expect(said(panesWith([]).open(path)), `${path} opened`).toEqual(numbersIn(closed[i]!));
      expect(said(all.close(path)), `${path} closed`).toEqual(without);
    });
  });

  it("the parts of a graph that arrives bit by bit add up", () => {
    const late = new Data();
    for (const { part } of vectors.steps) {
      late.add(part);
      // Whoever looks at each part as it comes, sees in the end what was there all along.
      new Graphs(late, () => []).scene(0);
    }
    const [bit, whole] = [late, data].map((arrived) => new Graphs(arrived, () => []).scene(0).hierarchy);
    expect(bit!.isComplete).toBe(true);
    expect(bit!.nodes).toEqual(whole!.nodes);
  });
});

function expectView(view: View, expected: GoldenView, { lines }: Vectors, data: Data): void {
  const paths = pathsOf(view.hierarchy);
  const short = new Map([...view.clusters, ...view.boxes].map((item) => [item.id, shortName(item, paths)]));
  const of = ({ id }: { id: string }): string => short.get(id)!;
  expect(view.boxes.map(of).join(" ")).toBe(expected.boxes);
  expect(view.clusters.map(of).join(" ")).toBe(expected.clusters);
  const edges = view.edges.map((edge) => `${of(edge.source)}-${of(edge.target)}:${edge.leaves.length}`);
  expect(edges.join(" ")).toBe(expected.edges);
  const chips = [...view.chips].map(([reader, read]) => [
    short.get(reader)!,
    read.map(({ source, box, end = "value" }) => `${source.position}:${of(box)}:${end}`).join(" "),
  ]);
  expect(Object.fromEntries(chips)).toEqual(expected.chips);
  expected.lines.forEach((lines, i) => {
    const styles = new LineStyles([view], (["alike", "dtype", "bytes"] as const)[i]!, data.paints);
    const drawn = view.edges.map((edge) => {
      const { colour = "", thickness = 0 } = styles.look(view, edge);
      return `${colour}:${thickness.toFixed(1)}`;
    });
    const { title = null, kinds = [] } = styles.legend ?? {};
    expect([...drawn, ...(title === null ? [] : [title, ...kinds])].join(" ")).toBe(lines);
  });
  const written = outline(view, placeBoxes(view, data), PLAIN)
    .replace(/[gn]-[0-9a-f]{12}/g, (id) => short.get(id)!)
    .split("\n");
  expect(written).toEqual(numbersIn(expected.outline).map((line) => lines[line]!));
}

/** Python adds exactly, and a page one number after the other. */
function rounded(value: Cell): Cell {
  return typeof value === "number" ? Number(value.toFixed(DIGITS)) : value;
}
