/** A picture as live elements: found by box, with room to hit small things, and numbers on changed boxes. */

import { s, type Attributes } from "../base/dom";
import { addTo, grouped } from "../base/format";
import type { Box, Picture } from "../base/protocol";
import { parseSvg } from "../base/sanitize";
import { clamp, holds, type Point, type Rectangle } from "../base/rectangles";

const TOGGLE_RADIUS = 7.5;
const FLAG_RADIUS = 8.5;
const MOST_ENLARGED = 2.2;
const NUMBER_OF_COLOURS = 5;
/** Signs and colours of what became of a node: added, removed, changed, rewired. */
const CHANGE_SIGNS = ["+", "−", "≠", "⇄"];

/** Returns the CSS value of the colour of the pass, or of the kind of change, with a number. */
export function markColour(number: number, picture?: Picture): string {
  return picture?.compared ? `var(--fxi-change-${number})` : `var(--fxi-mark-${number % NUMBER_OF_COLOURS})`;
}

/** Returns the sign of a mark: of a kind of change, or the number of a pass, which is that of its stage. */
export function markSign(mark: number, { compared, numbers }: Picture): string {
  return compared ? (CHANGE_SIGNS[mark] ?? "") : String(numbers[mark] ?? "");
}

export class LivePicture {
  readonly svg: SVGSVGElement;
  readonly elements = new Map<string, SVGGElement>();
  readonly edges = new Map<string, SVGGElement>();
  /** The words of opened groups. */
  readonly labels = new Map<string, SVGGElement>();
  /** Where these groups are, outer ones first. */
  private readonly groups = new Map<string, Rectangle>();
  readonly areas = new Map<string, Rectangle>();
  /** Ids of the edges that leave or enter a box. */
  readonly leaving = new Map<string, string[]>();
  readonly entering = new Map<string, string[]>();

  private readonly offset: { x: number; y: number };

  constructor(readonly picture: Picture) {
    this.svg = parseSvg(picture.svg);
    this.svg.setAttribute("aria-hidden", "true");
    const offset = (this.offset = canvasOffset(this.svg));
    for (const element of this.svg.querySelectorAll<SVGGElement>("g[id]")) {
      const id = element.id;
      element.removeAttribute("id");
      if (picture.edges[id]) this.addEdge(id, element);
      else if (picture.boxes[id]) this.addBox(id, element, picture.boxes[id], offset);
    }
  }

  box(id: string): Box | undefined {
    return this.picture.boxes[id];
  }

  /** Ids of the opened groups around a point, outer ones first. */
  groupsAt({ x, y }: Point): string[] {
    const isIn = (area: Rectangle): boolean => holds(area, { x, y, width: 0, height: 0 });
    return [...this.groups].flatMap(([id, area]) => (isIn(area) ? [id] : []));
  }

  /** Writes on a box how many nodes in it are found; nothing if there are none. */
  setCount(id: string, count: number): void {
    const [element, area] = [this.elements.get(id), this.areas.get(id)];
    element?.querySelector(":scope > .fxi-found-count")?.remove();
    if (!element || !area || count === 0) return;
    const words = grouped(count);
    const width = Math.max(2 * FLAG_RADIUS, 9 + 6.6 * words.length);
    const [x, y] = [area.x - this.offset.x - FLAG_RADIUS, area.y - this.offset.y - FLAG_RADIUS];
    element.append(s("g.fxi-found-count", ...pill({ x, y, width, height: 2 * FLAG_RADIUS }, words)));
  }

  /** Writes a few words on the lower edge of a box; nothing if there are none. */
  setLabel(id: string, words: string): void {
    const [element, area] = [this.elements.get(id), this.areas.get(id)];
    element?.querySelector(":scope > .fxi-overlay-label")?.remove();
    if (!element || !area || !words) return;
    const wanted = 10 + 5.6 * words.length;
    const width = Math.min(area.width + 2 * FLAG_RADIUS, wanted);
    const x = area.x - this.offset.x + (area.width - width) / 2;
    const y = area.y - this.offset.y + area.height - FLAG_RADIUS / 2;
    const narrow = { textLength: width - 10, lengthAdjust: "spacingAndGlyphs" };
    const look = { "font-size": 9.5, "font-weight": "normal", ...(width < wanted ? narrow : {}) };
    element.append(s("g.fxi-overlay-label", ...pill({ x, y, width, height: 13 }, words, look)));
  }

  private addEdge(id: string, element: SVGGElement): void {
    const { source, target } = this.picture.edges[id]!;
    element.dataset["edge"] = id;
    this.edges.set(id, element);
    addTo(this.leaving, source, id);
    addTo(this.entering, target, id);
    const line = element.querySelector("path");
    if (line) element.append(s("path.fxi-edge-hit", { d: line.getAttribute("d") ?? "" }));
  }

  /** Draws the words of an opened group above the edges that cross them. */
  private raiseLabel(id: string, element: SVGGElement, shape: Element): void {
    const label = s("g", {
      class: `fxi-cluster-label ${element.getAttribute("class") ?? ""}`.replace(" cluster", ""),
    });
    label.dataset["box"] = id;
    const words = [...element.children].filter((child) => child !== shape);
    label.append(...words);
    this.labels.set(id, label);
    this.groups.set(id, this.areas.get(id)!);
    element.parentElement?.append(label);
  }

  /** Says how much larger the title can be, in the middle of its box, where nothing else is on it. */
  private enlargeTitle(element: SVGGElement, area: Rectangle): void {
    const title = element.querySelector<SVGTextElement>(":scope > .fx-title");
    if (!title) return;
    const size = numberOf(title, "font-size");
    const width = numberOf(title, "textLength") || (title.textContent ?? "").length * size * 0.6;
    const room = Math.min((area.width - 8) / width, (area.height - 4) / size);
    const down = area.y + area.height / 2 - (numberOf(title, "y") - size * 0.35);
    title.style.setProperty("--larger", clamp(room, 1, MOST_ENLARGED).toFixed(2));
    title.style.setProperty("--down", `${down.toFixed(1)}px`);
  }

  private addBox(id: string, element: SVGGElement, box: Box, offset: { x: number; y: number }): void {
    element.dataset["box"] = id;
    this.elements.set(id, element);
    const shape = element.querySelector(":scope > rect.fx-shape");
    if (!shape) return;
    const sizes = ["x", "y", "width", "height"].map((name) => numberOf(shape, name));
    const [x, y, width, height] = sizes as [number, number, number, number];
    this.areas.set(id, { x: x + offset.x, y: y + offset.y, width, height });
    const toggle = element.querySelector("path.fx-toggle");
    const start = toggle?.getAttribute("d")?.match(/^M\s*(-?[\d.]+)[ ,]+(-?[\d.]+)/);
    if (toggle && start) {
      const [cx, cy] = [Number(start[1]) + 3.5, Number(start[2])];
      toggle.before(s("circle.fxi-toggle-disc", { cx, cy, r: TOGGLE_RADIUS }));
      toggle.after(s("circle.fxi-toggle-hit", { cx, cy, r: TOGGLE_RADIUS + 4 }));
    }
    if (box.marks.length > 0 && !box.openable) element.append(flag(x, y, box.marks, this.picture));
    if (box.kind === "cluster") this.raiseLabel(id, element, shape);
    else this.enlargeTitle(element, { x, y, width, height });
  }
}

/** Returns a rectangle with round ends, and words in its middle. */
function pill({ x, y, width, height }: Rectangle, words: string, look: Attributes = {}): SVGElement[] {
  const usual = { "text-anchor": "middle", "font-size": 10.5, "font-weight": "bold" };
  return [
    s("rect", { x, y, width, height, rx: height / 2 }),
    s("text", { x: x + width / 2, y: y + height / 2 + 3.6 - (17 - height) / 8, ...usual, ...look }, words),
  ];
}

/** Returns the numbers of the passes that changed a node, or what became of it: readable without colour. */
function flag(x: number, y: number, marks: number[], picture: Picture): SVGGElement {
  let left = x - FLAG_RADIUS;
  const discs = marks.map((mark) => {
    const words = markSign(mark, picture);
    const width = 2 * FLAG_RADIUS + 5 * Math.max(0, words.length - 1);
    const area = { x: left, y: y - FLAG_RADIUS, width, height: 2 * FLAG_RADIUS };
    const group = s("g", { style: `--mark: ${markColour(mark, picture)}` }, ...pill(area, words));
    left += width;
    return group;
  });
  return s("g.fxi-flag", ...discs);
}

function numberOf(element: Element, attribute: string): number {
  return Number(element.getAttribute(attribute)) || 0;
}

function canvasOffset(svg: SVGSVGElement): { x: number; y: number } {
  const transform = svg.querySelector("g.graph")?.getAttribute("transform") ?? "";
  const found = transform.match(/translate\(\s*(-?[\d.]+)[ ,]+(-?[\d.]+)/);
  return { x: Number(found?.[1] ?? 0), y: Number(found?.[2] ?? 0) };
}
