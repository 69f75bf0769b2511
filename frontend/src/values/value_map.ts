/** A map of two dimensions of a tensor, in colours, with a cursor that reads its cells. */

import { fill, h, onResize } from "../base/dom";
import { grouped, withUnit } from "../base/format";
import { clamp } from "../base/rectangles";
import type { TensorInfo, TensorMap } from "../base/wire";

type Numbers = Float32Array | Float64Array;

const STEPS: Record<string, [down: number, right: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
};

export class ValueMap {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas");
  private readonly small: SmallMaps;
  private readonly cursor = h("div.fxi-map-cursor", { hidden: true });
  private readonly field: HTMLElement;
  private readonly left = h("div.fxi-map-left.fxi-muted", { "aria-hidden": "true" });
  private readonly below = h("div.fxi-map-below.fxi-muted", { "aria-hidden": "true" });
  private readonly reading = h("output.fxi-map-reading", { "aria-live": "polite" });
  private readonly legend = h("div.fxi-map-legend.fxi-row.fxi-wrap.fxi-muted");
  private readonly caption = h("p.fxi-muted");
  private map: TensorMap | null = null;
  private cells: Numbers = new Float32Array();
  private scale: Scale | null = null;
  private at: [row: number, column: number] | null = null;
  /** An element that is to be read when its map is there. */
  private next: number[] | null = null;
  private isWatched = false;

  /** `choose` is called with the index of a small map that is pressed. */
  constructor(choose: (index: number[]) => void) {
    this.small = new SmallMaps(choose);
    this.field = h(
      "div.fxi-map-field",
      {
        ...{ role: "application", tabindex: 0, "aria-roledescription": "map" },
        onkeydown: (event: KeyboardEvent) => this.onKey(event),
        onpointermove: (event: PointerEvent) => this.point(event),
        onpointerdown: (event: PointerEvent) => this.point(event),
      },
      this.canvas,
      this.cursor,
    );
    this.element = h("figure.fxi-map", [
      this.small.element,
      h("div.fxi-map-frame", this.left, this.field, this.below),
      this.reading,
      this.legend,
      this.caption,
    ]);
    // Its colours are those of the place where it stands, which it may get after it was filled.
    onResize(this.field, () => this.appear());
  }

  /** Goes to an element once a map that has it is shown. */
  markNext(index: number[]): void {
    this.next = index;
  }

  /** Reads no cell any more: another node is looked at. */
  forget(): void {
    [this.at, this.next, this.map] = [null, null, null];
  }

  show(map: TensorMap, tensor: TensorInfo, title: string): void {
    const [rows, columns] = map.size;
    const before = this.map;
    this.map = map;
    this.cells = numbersOf(map.numbers, map.cells);
    this.scale = scaleOf(this.cells);
    this.small.show(map);
    const isEmpty = this.cells.length === 0;
    this.field.parentElement!.hidden = this.legend.hidden = this.reading.hidden = isEmpty;
    if (isEmpty) return void (this.caption.textContent = "It has no elements.");
    [this.canvas.width, this.canvas.height] = [columns, rows];
    this.element.style.setProperty("--rows", String(rows));
    this.element.style.setProperty("--columns", String(columns));
    const isSame = before?.size[0] === rows && before.size[1] === columns;
    if (!isSame) this.at = null;
    if (this.next) this.at = this.cellOf(this.next);
    this.next = null;
    this.label(map, tensor, title);
    this.appear();
    this.read();
  }

  private appear(): void {
    if (!this.element.isConnected) return;
    this.draw();
    this.watch();
  }

  private label({ rows, columns, shape, block }: TensorMap, { dtype }: TensorInfo, title: string): void {
    const last = (size: number): HTMLElement => h("span", size > 1 && grouped(size - 1));
    const named = [rows !== null && `dim ${rows} ↓`, columns !== null && `dim ${columns} →`].filter(Boolean);
    fill(this.left, rows === null ? null : [h("span", "0"), last(shape[0])]);
    fill(this.below, columns === null ? null : [h("span", "0"), h("span", named.join("  ")), last(shape[1])]);
    const { low, high, hasNonFinite, isSigned } = this.scale!;
    const numbers = dtype === "bool" ? ["false", "true"] : [withUnit(low), withUnit(high)];
    const ends = Number.isNaN(low) ? ["", ""] : low === high ? [withUnit(low), ""] : numbers;
    const range = ends[0] ? `from ${ends[0]} to ${ends[1] || ends[0]}` : "none of them finite";
    this.field.setAttribute(
      "aria-label",
      `${title}: ${shape[0]} rows and ${shape[1]} columns, ${range}. Arrow keys read its cells.`,
    );
    fill(this.legend, [
      h("span", ends[0]!),
      low < high && h("span.fxi-map-bar", { style: `--colours: ${coloursOf(low, isSigned)}` }),
      h("span", ends[1]!),
      hasNonFinite && h("span.fxi-map-nan", "NaN or ∞"),
    ]);
    const [down, right] = block;
    this.caption.textContent =
      down * right > 1
        ? `Each cell stands for ${grouped(down)} × ${grouped(right)} elements: ` +
          "the one with the largest absolute value."
        : "";
  }

  private draw(): void {
    const { map, cells, scale } = this;
    if (!map || !scale) return;
    const colours = this.colours();
    paint(this.canvas, cells, scale, colours);
    this.small.draw(colours);
  }

  private colours(): Colours {
    const style = getComputedStyle(this.element);
    const colour = (name: string): Pixel => pixel(style.getPropertyValue(`--fxi-map-${name}`).trim());
    return {
      low: colour("low"),
      zero: colour("zero"),
      high: colour("high"),
      nonFinite: colour("non-finite"),
    };
  }

  /** Draws it anew in the colours of another theme. */
  private watch(): void {
    const root = this.element.closest(".fxlab-inspector");
    if (this.isWatched || !root) return;
    this.isWatched = true;
    const attributeFilter = ["data-theme", "data-contrast"];
    new MutationObserver(() => this.draw()).observe(root, { attributes: true, attributeFilter });
  }

  private onKey(event: KeyboardEvent): void {
    const step = STEPS[event.key];
    const { map } = this;
    if (!map || event.ctrlKey || event.metaKey || event.altKey) return;
    const [rows, columns] = map.size;
    const [row, column] = this.at ?? [0, 0];
    if (event.key === "Home") this.at = [row, 0];
    else if (event.key === "End") this.at = [row, columns - 1];
    else if (step && this.at)
      this.at = [clamp(row + step[0], 0, rows - 1), clamp(column + step[1], 0, columns - 1)];
    else if (step) this.at = [0, 0];
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.read();
  }

  private point(event: PointerEvent): void {
    if (!this.map) return;
    const { left, top, width, height } = this.canvas.getBoundingClientRect();
    const [rows, columns] = this.map.size;
    const share = (at: number, size: number, count: number): number =>
      clamp(Math.floor((at / size) * count), 0, count - 1);
    this.at = [share(event.clientY - top, height, rows), share(event.clientX - left, width, columns)];
    this.read();
  }

  /** Says where the cursor is, and what is there. */
  private read(): void {
    const { map, at } = this;
    this.cursor.hidden = !map || !at;
    if (!map || !at) return void (this.reading.textContent = "");
    const [row, column] = at;
    const [rows, columns] = map.size;
    const part = (share: number): string => `${100 * share}%`;
    Object.assign(this.cursor.style, {
      ...{ left: part(column / columns), top: part(row / rows) },
      ...{ width: part(1 / columns), height: part(1 / rows) },
    });
    const places = map.index.map((place, d) =>
      place !== null ? String(place) : span(at, map, d === map.columns ? 1 : 0),
    );
    const cell = this.cells[row * columns + column]!;
    this.reading.textContent = `[${places.join(", ")}] = ${exact(cell)}`;
  }

  private cellOf(index: number[]): [row: number, column: number] | null {
    const { rows, columns, block, size } = this.map!;
    const place = (dimension: number | null, which: 0 | 1): number =>
      dimension === null ? 0 : clamp(Math.floor(index[dimension]! / block[which]), 0, size[which] - 1);
    return [place(rows, 0), place(columns, 1)];
  }
}

/** Returns the indices of the elements that a cell stands for, in one direction. */
function span(at: [number, number], { block, shape }: TensorMap, which: 0 | 1): string {
  const first = at[which] * block[which];
  const last = Math.min(first + block[which], shape[which]) - 1;
  return first === last ? String(first) : `${first}–${last}`;
}

function exact(cell: number): string {
  if (!Number.isFinite(cell)) return withUnit(cell);
  return String(Number.isInteger(cell) ? cell : Number(cell.toPrecision(7)));
}

export class SmallMaps {
  readonly element = h("div.fxi-small-maps", { role: "group", hidden: true });
  private map: TensorMap | null = null;
  private canvases: HTMLCanvasElement[] = [];

  constructor(private readonly choose: (index: number[]) => void) {}

  show(map: TensorMap): void {
    const { small, index } = map;
    this.map = map;
    this.element.hidden = !small;
    if (!small) return void fill(this.element);
    const { dimension, first, count, size } = small;
    this.element.setAttribute("aria-label", `All of dim ${dimension}, in the same colours`);
    this.canvases = Array.from({ length: count }, () => h("canvas", { width: size[1], height: size[0] }));
    fill(this.element, [
      this.canvases.map((canvas, i) =>
        h(
          "button.fxi-small-map",
          {
            ...{ title: `dim ${dimension}: ${first + i}` },
            "aria-label": `Index ${first + i} of dim ${dimension}`,
            "aria-pressed": String(index[dimension] === first + i),
            onclick: () => this.choose(index.map((place, d) => (d === dimension ? first + i : (place ?? 0)))),
          },
          canvas,
          h("span", String(first + i)),
        ),
      ),
    ]);
  }

  draw(colours: Colours): void {
    const small = this.map?.small;
    if (!small) return;
    const cells = numbersOf(small.numbers, small.cells);
    const scale = scaleOf(cells);
    const size = small.size[0] * small.size[1];
    this.canvases.forEach((canvas, i) =>
      paint(canvas, cells.subarray(i * size, (i + 1) * size), scale, colours),
    );
  }
}

/** Returns the colours of numbers from the least to the largest. */
function coloursOf(low: number, isSigned: boolean): string {
  const names = isSigned ? ["low", "zero", "high"] : low < 0 ? ["low", "zero"] : ["zero", "high"];
  return names.map((name) => `var(--fxi-map-${name})`).join();
}

/** Draws a cell for each pixel. */
function paint(canvas: HTMLCanvasElement, cells: Numbers, scale: Scale, colours: Colours): void {
  // Without a canvas, as in tests, the cells can still be read.
  const context = canvas.getContext?.("2d");
  if (!context) return;
  const image = context.createImageData(canvas.width, canvas.height);
  cells.forEach((cell: number, i: number) => image.data.set(colourOf(cell, scale, colours), i * 4));
  context.putImageData(image, 0, 0);
}

/** Returns numbers of four or eight bytes. */
export function numbersOf(numbers: "f4" | "f8", cells: string): Numbers {
  const bytes = Uint8Array.from(atob(cells), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  if (numbers === "f8")
    return Float64Array.from({ length: bytes.length / 8 }, (_, i) => view.getFloat64(i * 8, true));
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(i * 4, true));
}

type Pixel = [red: number, green: number, blue: number, opacity: number];
/** The colours of a theme. */
type Colours = Record<"low" | "zero" | "high" | "nonFinite", Pixel>;

export interface Scale {
  /** Of the finite numbers, or as far below zero as above; NaN if there are none. */
  low: number;
  high: number;
  /** Whether there are numbers on both sides of zero. */
  isSigned: boolean;
  hasNonFinite: boolean;
}

export function scaleOf(cells: Numbers): Scale {
  let [low, high, hasNonFinite] = [Infinity, -Infinity, false];
  for (const cell of cells)
    if (Number.isFinite(cell)) [low, high] = [Math.min(low, cell), Math.max(high, cell)];
    else hasNonFinite = true;
  if (low > high) return { low: NaN, high: NaN, isSigned: false, hasNonFinite };
  const isSigned = low < 0 && high > 0;
  const largest = Math.max(-low, high);
  return isSigned
    ? { low: -largest, high: largest, isSigned, hasNonFinite }
    : { low, high, isSigned, hasNonFinite };
}

export function colourOf(cell: number, { low, high, isSigned }: Scale, colours: Colours): Pixel {
  if (!Number.isFinite(cell)) return colours.nonFinite;
  // The strong colour is farthest from zero; where all are alike it is that of zero, or of what is none.
  const strong = (isSigned ? cell : low) < 0 ? colours.low : colours.high;
  const above = cell / (high - low) - low / (high - low);
  const alone = low === high ? Number(low !== 0) : low < 0 ? 1 - above : above;
  const share = isSigned ? Math.abs(cell) / high : alone;
  return colours.zero.map((channel, i) => Math.round(channel + (strong[i]! - channel) * share)) as Pixel;
}

/** Reads a colour such as `#rrggbb`. */
export function pixel(colour: string): Pixel {
  const channel = (at: number): number => parseInt(colour.slice(at, at + 2), 16) || 0;
  return [channel(1), channel(3), channel(5), 255];
}
