/** A picture as it is saved: with the colours of an overlay, those of paper, and what they mean. */

import { type Attributes, s } from "../base/dom";
import { paintTogether, type Paint, type Painted } from "./overlays/overlay";
import type { Overlay, Picture } from "../base/protocol";
import type { Size } from "../base/rectangles";
import type { Paints } from "../base/wire";

// As in `fxlab.drawing.rendering.labels`.
const [WIDTH, MARGIN, ROW, STEPS, HEIGHT, SWATCH] = [240, 14, 19, 30, 12, 18];
const [TITLE_SIZE, LINE_SIZE] = [12.5, 10.5];
const LONGEST_WORDS = 30;
/** Between two pictures, and above them for their names. */
const [GAP, HEAD] = [40, 36];

export interface Colours {
  fill: string;
  border: string;
  dashed: boolean;
}

export interface Legend {
  title: string;
  ends: [low: string, high: string] | null;
  kinds: [colours: Colours, words: string][];
}

/** A graph that is saved; its name is that of its stage. */
export interface Side {
  picture: Picture;
  overlay: Overlay | null;
  name: string;
}

export type Drawing = Pick<Picture, "svg" | "width" | "height">;

/**
 * Returns a graph, or several side by side, on one scale: with the colours of an overlay and a legend
 * below.
 */
export function savedPicture(sides: Side[], paints: Paints): Drawing {
  const overlays = sides.flatMap(({ overlay, picture }): [Overlay, Picture][] =>
    overlay ? [[overlay, picture]] : [],
  );
  const painted = new Map(paintTogether(overlays).map((own, i) => [overlays[i]![1], own]));
  const roots = sides.map(({ picture }) => drawn(picture, painted.get(picture), paints));
  const [root, size] = sides.length === 1 ? [roots[0]!, sides[0]!.picture] : abreast(roots, sides, paints);
  const [overlay, picture] = overlays[0] ?? [];
  const lines = sides.at(-1)?.picture.lines;
  const legends: Legend[] = [
    ...(overlay ? [legendOf(overlay, painted.get(picture!)!, paints)] : []),
    ...(lines ? [{ title: lines.title, ends: null, kinds: coloursOfKinds(lines.kinds, paints) }] : []),
  ];
  const { width, height } = legends.length > 0 ? addLegend(root, size, legends, paints) : size;
  return { svg: new XMLSerializer().serializeToString(root), width, height };
}

/** Returns a picture, with the colours of an overlay if there is one. */
function drawn(picture: Picture, painted: Painted | undefined, paints: Paints): Element {
  const root = new DOMParser().parseFromString(picture.svg, "image/svg+xml").documentElement;
  const colours = painted ? coloursOfBoxes(painted, picture, paints) : new Map<string, Colours>();
  for (const group of root.querySelectorAll("g[id]")) {
    const own = colours.get(group.id);
    if (!own) continue;
    for (const shape of group.querySelectorAll(":scope > .fx-shape, :scope > .fx-sheet")) {
      shape.setAttribute("fill", own.fill);
      shape.setAttribute("stroke", own.border);
      if (own.dashed) shape.setAttribute("stroke-dasharray", "3 3");
    }
    for (const words of group.querySelectorAll(":scope > .fx-title, :scope > .fx-line"))
      words.setAttribute("fill", paints.ink);
  }
  return root;
}

/** Puts pictures side by side, their names above. */
function abreast(roots: Element[], sides: Side[], paints: Paints): [Element, Size] {
  const around = s("svg.fx-picture", {
    "font-family": roots[0]!.getAttribute("font-family") ?? "sans-serif",
  });
  let x = 0;
  sides.forEach(({ picture, name }, i) => {
    const root = roots[i]!;
    // The same nodes are in both, by the same ids.
    for (const element of root.querySelectorAll("[id]")) element.id = `stage-${i}-${element.id}`;
    const width = Math.max(picture.width, WIDTH);
    root.setAttribute("x", String(x + (width - picture.width) / 2));
    root.setAttribute("y", String(HEAD));
    const at = { x: x + width / 2, y: HEAD - MARGIN };
    const look = {
      "font-size": TITLE_SIZE,
      "font-weight": "bold",
      fill: paints.ink,
      "text-anchor": "middle",
    };
    around.append(s("text.fx-title", { ...at, ...look }, shortened(name)), root);
    x += width + GAP;
  });
  const size = { width: x - GAP, height: HEAD + Math.max(...sides.map(({ picture }) => picture.height)) };
  setSize(around, size);
  return [around, size];
}

/** Adds legends below a picture and returns the size of all. */
function addLegend(root: Element, size: Size, legends: Legend[], paints: Paints): Size {
  const width = Math.max(size.width, WIDTH);
  const left = (size.width - width) / 2;
  const around = s("g.fx-legend", { id: "fx-legend" });
  let bottom = size.height;
  for (const legend of legends) {
    const [group, end] = drawLegend(legend, left + MARGIN, bottom + ROW, paints);
    around.append(group);
    bottom = end;
  }
  root.append(around);
  const whole = { width, height: bottom + MARGIN };
  setSize(root, whole, left);
  return whole;
}

function setSize(root: Element, { width, height }: Size, left = 0): void {
  for (const [name, value] of Object.entries({ width, height, viewBox: `${left} 0 ${width} ${height}` }))
    root.setAttribute(name, String(value));
}

function coloursOfBoxes(painted: Painted, picture: Picture, paints: Paints): Map<string, Colours> {
  const colours = new Map<string, Colours>();
  for (const [id, { kind, changed }] of Object.entries(picture.boxes)) {
    if (kind === "cluster" || kind === "chip") continue;
    const own = coloursOf(painted.boxes.get(id), paints);
    colours.set(id, changed > 0 ? { fill: own.fill, border: paints.changed, dashed: false } : own);
  }
  return colours;
}

function coloursOf(own: Paint | undefined, paints: Paints): Colours {
  if (own?.level !== undefined)
    return { fill: heat(own.level, paints), border: paints.heatLine, dashed: false };
  const kind = own?.kind === undefined ? undefined : paints.kinds[own.kind];
  const [fill, border] = kind ?? paints.plain;
  return { fill, border, dashed: kind === undefined };
}

function legendOf({ title }: Overlay, { ends, kinds }: Painted, paints: Paints): Legend {
  return { title: shortened(title), ends, kinds: coloursOfKinds(kinds, paints) };
}

function coloursOfKinds(kinds: string[], paints: Paints): [Colours, string][] {
  return paints.kinds.slice(0, kinds.length).map(([fill, border], i): [Colours, string] => {
    const others = i === paints.kinds.length - 1 && kinds.length > paints.kinds.length;
    return [{ fill, border, dashed: false }, others ? "others" : shortened(kinds[i]!)];
  });
}

/** Returns the elements and where they end. */
function drawLegend(
  { title, ends, kinds }: Legend,
  x: number,
  top: number,
  paints: Paints,
): [SVGGElement, number] {
  const group = s("g");
  let y = top;
  const bar = (left: number, width: number, fill: string, stroke: string, rx = 0): void => {
    const area = { x: left.toFixed(2), y: y + 8, width: width.toFixed(2), height: HEIGHT, rx };
    group.append(s("rect.fx-shape", { ...area, fill, stroke, "stroke-width": 1 }));
  };
  const write = (text: string, at: { x: number; y: number }, look: Attributes = {}): void => {
    const usual = { "font-size": LINE_SIZE, fill: paints.ink, "text-anchor": "start" };
    group.append(s("text", { class: "fx-line", ...at, ...usual, ...look }, text));
  };
  write(title, { x, y }, { class: "fx-title", "font-size": TITLE_SIZE, "font-weight": "bold" });
  if (ends) {
    const length = WIDTH - 2 * MARGIN;
    const step = length / STEPS;
    // A little wider than a step, so that nothing shows between two of them.
    for (let i = 0; i < STEPS; i += 1) bar(x + i * step, step + 0.5, heat(i / (STEPS - 1), paints), "none");
    bar(x, length + 0.5, "none", paints.heatLine);
    y += 8 + HEIGHT + ROW - 4;
    write(ends[0], { x, y });
    write(ends[1], { x: x + length, y }, { "text-anchor": "end" });
  }
  for (const [{ fill, border }, text] of kinds) {
    bar(x, SWATCH, fill, border, 3);
    y += ROW;
    write(text, { x: x + SWATCH + 8, y: y - 1 });
  }
  return [group, y];
}

function heat(level: number, { heat: [low, high] }: Paints): string {
  const parts = [1, 3, 5].map((i) => {
    const [a, b] = [low, high].map((end) => parseInt(end.slice(i, i + 2), 16)) as [number, number];
    return Math.round(a + (b - a) * level)
      .toString(16)
      .padStart(2, "0");
  });
  return `#${parts.join("")}`;
}

/** Cuts the middle out of what is too long for a legend. */
function shortened(text: string): string {
  const tail = Math.floor(LONGEST_WORDS / 3);
  return text.length <= LONGEST_WORDS
    ? text
    : `${text.slice(0, LONGEST_WORDS - tail - 1)}…${text.slice(-tail)}`;
}

const SCALE = 2;
/** What browsers allow of a canvas. */
const MOST_PIXELS = 120_000_000;
const LONGEST_SIDE = 16_000;

/** Draws a picture on paper white; rejects if no canvas can hold it. */
export async function rasterised({ svg, width, height }: Drawing): Promise<Blob> {
  const scale = Math.min(
    SCALE,
    LONGEST_SIDE / width,
    LONGEST_SIDE / height,
    Math.sqrt(MOST_PIXELS / (width * height)),
  );
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser has no canvas.");
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image(canvas.width, canvas.height);
    image.src = url;
    await image.decode();
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
  } finally {
    URL.revokeObjectURL(url);
  }
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large."))),
      "image/png",
    ),
  );
}
