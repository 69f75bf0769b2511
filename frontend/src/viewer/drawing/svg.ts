/**
 * From Graphviz's SVG, read for its geometry only, to the picture's own; the twin of
 * `fxlab.drawing.rendering.safe_svg`.
 */

import type { Edge } from "../../base/protocol";
import { holds, type Rectangle } from "../../base/rectangles";
import type { PlacedBox, PlacedChip } from "./boxes";
import { withUnit } from "../../base/format";
import { escaped } from "./dot";
import type { LineLook } from "./lines";
import type { Metrics, Word } from "../../base/wire";

interface Layout {
  width: number;
  height: number;
  origin: [number, number];
  /** Boxes and clusters by id, outer clusters first. */
  areas: Map<string, Rectangle>;
  clusters: Set<string>;
  /** Id of an edge -> the path of its line and the points of its arrowhead. */
  edges: Map<string, [line: string, arrow: string]>;
}

export interface Drawn {
  svg: string;
  width: number;
  height: number;
}

/** A line along which so many values flow. */
export type DrawnEdge = Edge & LineLook & { count: number };

/** On paper. */
const LANE = "#e4e8ef";
/** Points of the headings of columns of a step. */
const HEADING_SIZE = 12;

export function writeSvg(
  graphviz: string,
  boxes: Map<string, PlacedBox>,
  edges: Map<string, DrawnEdge>,
  metrics: Metrics,
  shapes: boolean,
  headings: readonly Word[] = [],
): Drawn {
  const layout = read(graphviz);
  const { width, height } = layout;
  return { svg: new Writer(metrics, shapes).picture(layout, boxes, edges, headings), width, height };
}

function read(graphviz: string): Layout {
  const root = new DOMParser().parseFromString(graphviz, "image/svg+xml").documentElement;
  const [, , width = 1, height = 1] = (root.getAttribute("viewBox") ?? "").split(" ").map(Number);
  const moved = root
    .querySelector("g")
    ?.getAttribute("transform")
    ?.match(/translate\((-?[\d.]+)[ ,]+(-?[\d.]+)\)/);
  const layout: Layout = {
    width,
    height,
    origin: [Number(moved?.[1] ?? 0), Number(moved?.[2] ?? 0)],
    areas: new Map(),
    clusters: new Set(),
    edges: new Map(),
  };
  for (const group of root.querySelectorAll("g")) {
    const kind = group.getAttribute("class");
    const shapes = [...group.querySelectorAll("path, polygon")];
    if (kind === "edge") {
      const line = group.querySelector("path")?.getAttribute("d");
      if (line)
        layout.edges.set(group.id, [line, group.querySelector("polygon")?.getAttribute("points") ?? ""]);
    } else if (kind === "node" || kind === "cluster") {
      const numbers = shapes
        .flatMap(
          (shape) =>
            (shape.getAttribute("d") ?? shape.getAttribute("points") ?? "").match(
              /-?\d+(?:\.\d+)?(?:e-?\d+)?/g,
            ) ?? [],
        )
        .map(Number);
      const [xs, ys] = [0, 1].map((side) => numbers.filter((_, i) => i % 2 === side)) as [number[], number[]];
      const [x, y] = [Math.min(...xs), Math.min(...ys)];
      layout.areas.set(group.id, { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y });
      if (kind === "cluster") layout.clusters.add(group.id);
    }
  }
  return layout;
}

type Attributes = Record<string, string | number>;

/** Words on a line are read on paper, and in the page's own colour. */
const HALO = { "paint-order": "stroke", stroke: "#ffffff", "stroke-width": 4, "stroke-linejoin": "round" };

class Writer {
  constructor(
    private readonly m: Metrics,
    /** Whether lines say the shapes of what flows along them. */
    private readonly shapes: boolean,
  ) {}

  picture(
    layout: Layout,
    boxes: Map<string, PlacedBox>,
    edges: Map<string, DrawnEdge>,
    headings: readonly Word[],
  ): string {
    const { width, height, origin, areas, clusters } = layout;
    const parts: string[] = [];
    const around: Rectangle[] = [];
    headings.forEach((heading, number) => {
      const area = areas.get(`column-${number}`);
      if (area) parts.push(this.column(heading, area));
    });
    for (const [id, area] of areas) {
      const box = boxes.get(id);
      if (!box || !clusters.has(id)) continue;
      while (around.length > 0 && !holds(around.at(-1)!, area)) around.pop();
      parts.push(this.cluster(box, area, around.length % 2));
      around.push(area);
    }
    for (const [id, [line, arrow]] of layout.edges) {
      const edge = edges.get(id);
      if (edge) parts.push(this.edge(id, edge, boxes, line, arrow));
    }
    for (const [id, area] of areas) {
      const box = boxes.get(id);
      if (box && !clusters.has(id)) parts.push(this.box(box, area));
    }
    const canvas = element(
      "g",
      { class: "graph", transform: `translate(${n(origin[0])} ${n(origin[1])})` },
      parts.join(""),
    );
    const size = { width: n(width), height: n(height), viewBox: `0 0 ${n(width)} ${n(height)}` };
    return element(
      "svg",
      { xmlns: "http://www.w3.org/2000/svg", class: "fx-picture", ...size, "font-family": this.m.font },
      canvas,
    );
  }

  private cluster({ id, box, look }: PlacedBox, area: Rectangle, depth: number): string {
    const { m } = this;
    const [fill, line] = m.clusterColours[depth]!;
    const [left, y] = [area.x + 14, area.y + 19];
    let x = left + 11;
    const parts = [
      this.rectangle(area, fill, box.changed ? m.changedCluster : line, 9),
      this.toggle(left, y - 4, true),
      this.text("fx-title", look.title, x, y, m.titleSize, m.ink, { bold: true, anchor: "start" }),
    ];
    x += look.title[1] + 8;
    for (const word of look.lines) {
      parts.push(this.text("fx-line", word, x, y, m.lineSize, m.softInk, { anchor: "start" }));
      x += word[1] + 8;
    }
    if (look.badge) parts.push(this.badge(look.badge, x + look.badge[1] / 2 + 7, y - 11));
    return element("g", { id, class: `${look.classes} fx-depth-${depth}` }, parts.join(""));
  }

  /** The room of a column of a step, with its heading. */
  private column(heading: Word, area: Rectangle): string {
    const { softInk } = this.m;
    return element(
      "g",
      { class: "fx-column" },
      this.rectangle(area, "none", LANE, 9) +
        this.text("fx-line", heading, area.x + 14, area.y + 22, HEADING_SIZE, softInk, { anchor: "start" }),
    );
  }

  private edge(
    id: string,
    edge: DrawnEdge,
    boxes: Map<string, PlacedBox>,
    line: string,
    arrow: string,
  ): string {
    const { saved, kind, colour: stroke = this.m.edge } = edge;
    const isSaved = saved !== undefined;
    const several = edge.count > 1 && !isSaved;
    const thickness = edge.thickness ?? (several ? 1.8 : 1.1);
    const kept = isSaved ? withUnit(saved, "B") : "";
    const words = [kept, (this.shapes && edge.label) || ""].filter(Boolean).join(" · ");
    const title = `${boxes.get(edge.source)?.look.title[0]} → ${boxes.get(edge.target)?.look.title[0]}`;
    const parts = [
      element("title", {}, escaped([title, edge.label, kept && `${kept} kept`].filter(Boolean).join(" · "))),
      element("path", { d: line, fill: "none", stroke, "stroke-width": n(thickness) }),
      arrow && element("polygon", { points: arrow, fill: stroke, stroke: "none" }),
      words && this.words(words, line, isSaved ? -thickness / 2 - 6 : 0),
    ];
    return element(
      "g",
      {
        id,
        class: [
          "edge",
          several && "fx-several",
          isSaved && "fx-saved",
          kind !== undefined && `fxi-kind-${kind}`,
        ]
          .filter(Boolean)
          .join(" "),
        "data-source": edge.source,
        "data-target": edge.target,
      },
      parts.join(""),
    );
  }

  /** Words in the middle of a line. */
  private words(label: string, line: string, up: number): string {
    const [x, y] = middleOf(line);
    const { chipSize, softInk } = this.m;
    return this.text("fx-flow", [label, 0, false], x, y + up + chipSize / 3, chipSize, softInk, {
      halo: true,
    });
  }

  private box({ id, box, look, textTop, chips }: PlacedBox, area: Rectangle): string {
    const { m } = this;
    const [fill, line] = look.colours;
    const radius = box.kind === "placeholder" || box.kind === "output" ? area.height / 2 : 7;
    const sheets = box.kind === "repeat" ? [2 * m.sheet, m.sheet] : [];
    const slim = look.classes.split(" ").includes("fx-bookkeeping");
    const middle = area.x + area.width / 2;
    let y = area.y + m.paddingY * (slim ? 0.5 : 1) + textTop + m.titleHeight - 4.5;
    const parts = [
      ...sheets.map((offset) =>
        this.rectangle({ ...area, x: area.x + offset, y: area.y + offset }, fill, line, radius, {
          name: "fx-sheet",
        }),
      ),
      this.rectangle(area, fill, line, radius, { heavy: box.changed > 0 }),
      look.openable ? this.toggle(area.x + area.width - 11, area.y + 11, false) : "",
      this.text("fx-title", look.title, middle, y, m.titleSize, slim ? m.softInk : m.ink, { bold: !slim }),
    ];
    for (const word of look.lines) {
      y += m.lineHeight;
      parts.push(this.text("fx-line", word, middle, y, m.lineSize, m.softInk));
    }
    if (look.badge) parts.push(this.badge(look.badge, middle, y + 7));
    const label = [box.label, ...box.details].join(", ").slice(0, 300);
    return (
      element("g", { id, class: look.classes, "aria-label": label }, parts.join("")) +
      chips.map((chip) => this.chip(chip, area)).join("")
    );
  }

  private chip({ id, box, word, x, y, width }: PlacedChip, reader: Rectangle): string {
    const { m } = this;
    const area = { x: reader.x + x, y: reader.y + y, width, height: m.chipHeight };
    const parts = [
      element("title", {}, escaped(`${box.label.slice(0, 300)}, elsewhere`)),
      this.rectangle(area, ...m.chipColours, m.chipHeight / 2),
      this.text("fx-title", word, area.x + width / 2, area.y + m.chipHeight - 4.3, m.chipSize, m.chipInk),
    ];
    return element("g", { id, class: "node fx-chip", "data-source": box.refersTo }, parts.join(""));
  }

  private badge(word: Word, middle: number, top: number): string {
    const { m } = this;
    const width = word[1] + 14;
    const pill = this.rectangle(
      { x: middle - width / 2, y: top, width, height: m.chipHeight },
      m.changed,
      "none",
      m.chipHeight / 2,
    );
    return element(
      "g",
      { class: "fx-badge" },
      pill +
        this.text("fx-badge-text", word, middle, top + m.chipHeight - 4.3, m.chipSize, "#ffffff", {
          bold: true,
        }),
    );
  }

  private rectangle(
    area: Rectangle,
    fill: string,
    stroke: string,
    radius: number,
    { heavy = false, name = "fx-shape" } = {},
  ): string {
    const { x, y, width, height } = area;
    return element("rect", {
      class: name,
      x: n(x),
      y: n(y),
      width: n(width),
      height: n(height),
      rx: n(Math.min(radius, height / 2)),
      fill,
      stroke,
      "stroke-width": heavy ? 2.2 : 1,
    });
  }

  private toggle(x: number, y: number, opened: boolean): string {
    const d = `M${n(x - 3.5)} ${n(y)}h7${opened ? "" : `M${n(x)} ${n(y - 3.5)}v7`}`;
    return element("path", {
      class: "fx-toggle",
      d,
      fill: "none",
      stroke: this.m.groupInk,
      "stroke-width": 1.4,
    });
  }

  private text(
    name: string,
    [text, width, isKnown]: Word,
    x: number,
    y: number,
    size: number,
    fill: string,
    { bold = false, anchor = "middle", halo = false } = {},
  ): string {
    const attributes: Attributes = {
      class: name,
      x: n(x),
      y: n(y),
      "font-size": size,
      fill,
      "text-anchor": anchor,
    };
    if (bold) attributes["font-weight"] = "bold";
    if (halo) Object.assign(attributes, HALO);
    if (isKnown) Object.assign(attributes, { textLength: n(width), lengthAdjust: "spacingAndGlyphs" });
    return element("text", attributes, escaped(text));
  }
}

/** Returns the middle of a line, which Graphviz writes as Bézier curves. */
function middleOf(line: string): [x: number, y: number] {
  const numbers = (line.match(/-?\d+(?:\.\d+)?(?:e-?\d+)?/g) ?? []).map(Number);
  const points = numbers.flatMap((x, i): [number, number][] => (i % 2 ? [] : [[x, numbers[i + 1] ?? 0]]));
  const curves = (points.length - 1) / 3;
  const at = 3 * Math.floor(curves / 2);
  if (curves % 2 !== 1) return points[at] ?? [0, 0];
  const [a, b, c, d] = points.slice(at, at + 4) as [number, number][];
  const half = (i: 0 | 1): number => (a![i] + 3 * b![i] + 3 * c![i] + d![i]) / 8;
  return [half(0), half(1)];
}

function element(tag: string, attributes: Attributes, content = ""): string {
  const written = Object.entries(attributes).map(([name, value]) => ` ${name}="${escaped(String(value))}"`);
  return `<${tag}${written.join("")}>${content}</${tag}>`;
}

function n(value: number): string {
  return String(Number(value.toFixed(2)));
}
