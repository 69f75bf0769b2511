/** Which two dimensions of a tensor the map shows, and the index in each of the others. */

import type { Axes } from "../base/protocol";
import { choice, fill, focusedIn, h, redraw } from "../base/dom";
import { grouped } from "../base/format";
import type { TensorMap } from "../base/wire";

export class AxesControls {
  readonly element = h("div.fxi-axes.fxi-wrap");
  private shape: number[] = [];
  private axes: Axes = { rows: null, columns: null, index: [] };
  /** By the dimension; of those that are not shown. */
  private fields = new Map<number, HTMLInputElement>();
  private made = "";

  constructor(private readonly choose: (axes: Axes) => void) {}

  /** Shows where a map lies in its tensor. */
  show(shape: number[], map: TensorMap, isFixed: boolean): void {
    const { rows, columns } = map;
    const index = map.index.map((place, d) => place ?? this.axes.index[d] ?? 0);
    const isOther = index.length !== this.axes.index.length;
    this.axes = { rows, columns, index: isOther ? map.index.map((place) => place ?? 0) : index };
    this.shape = shape;
    const made = JSON.stringify([shape, rows, columns, isFixed]);
    if (made !== this.made) {
      this.made = made;
      this.make(isFixed);
    }
    for (const [d, slider] of this.fields) {
      // What somebody is dragging is newer.
      if (focusedIn(slider) === null) slider.value = String(index[d]);
      this.say(d, slider);
    }
  }

  private make(isFixed: boolean): void {
    const { shape, axes } = this;
    this.fields = new Map();
    this.element.hidden = shape.length < 3;
    if (this.element.hidden) return fill(this.element);
    const others = shape.flatMap((size, d) => (d === axes.rows || d === axes.columns || size < 2 ? [] : [d]));
    redraw(this.element, () => [
      !isFixed && this.select("rows", "Rows"),
      !isFixed && this.select("columns", "Columns"),
      others.map((d) => (isFixed ? this.place(d) : this.field(d))),
    ]);
  }

  private select(which: "rows" | "columns", title: string): HTMLElement {
    const select = choice(
      (dimension) => this.turn(which, Number(dimension)),
      this.shape.map((size, d) =>
        h("option", { value: d, selected: d === this.axes[which] }, `dim ${d} (${size})`),
      ),
      { "data-focus": which },
    );
    return h("label.fxi-axis.fxi-small.fxi-row", h("span", title), select);
  }

  /** Shows a dimension as rows or columns; if it was the other, the two change places. */
  private turn(which: "rows" | "columns", dimension: number): void {
    const other = which === "rows" ? "columns" : "rows";
    const axes = { ...this.axes, [which]: dimension };
    if (axes[other] === dimension) axes[other] = this.axes[which];
    this.ask(axes);
  }

  private field(dimension: number): HTMLElement {
    const slider: HTMLInputElement = h("input", {
      ...{ type: "range", min: 0, max: this.shape[dimension]! - 1, step: 1 },
      ...{ value: this.axes.index[dimension], "data-focus": `slider-${dimension}` },
      "aria-label": `Index in dimension ${dimension}`,
      oninput: () => {
        this.say(dimension, slider);
        this.ask({ ...this.axes, index: this.axes.index.with(dimension, Number(slider.value)) });
      },
    });
    this.fields.set(dimension, slider);
    const element = h("div.fxi-axis.fxi-small.fxi-row.fxi-axis-index", slider, h("output.fxi-muted"));
    this.say(dimension, slider);
    return element;
  }

  private say(dimension: number, slider: HTMLInputElement): void {
    slider.nextElementSibling!.textContent = this.words(dimension, slider.value);
  }

  private words(dimension: number, index: string | number): string {
    return `dim ${dimension}: index ${index} of ${grouped(this.shape[dimension]!)}`;
  }

  /** Says an index that nobody can change. */
  private place(dimension: number): HTMLElement {
    const words = this.words(dimension, this.axes.index[dimension]!);
    return h("span.fxi-axis.fxi-small.fxi-row.fxi-muted", words);
  }

  private ask(axes: Axes): void {
    this.axes = axes;
    this.choose(axes);
  }
}
