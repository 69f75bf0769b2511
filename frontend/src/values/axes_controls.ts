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
  private fields = new Map<number, { slider: HTMLInputElement; number: HTMLInputElement }>();
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
    for (const [d, { slider, number }] of this.fields) {
      const place = String(index[d]);
      // What somebody is typing or dragging is newer.
      for (const field of [slider, number]) if (focusedIn(field) === null) field.value = place;
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
    const most = this.shape[dimension]! - 1;
    const range = { min: 0, max: most, step: 1, value: this.axes.index[dimension] };
    const choose = (field: HTMLInputElement): void => {
      const place = Number(field.value);
      if (field.value === "" || !Number.isInteger(place) || place < 0 || place > most) return;
      const { slider, number } = this.fields.get(dimension)!;
      slider.value = number.value = String(place);
      this.ask({ ...this.axes, index: this.axes.index.with(dimension, place) });
    };
    const slider: HTMLInputElement = h("input", {
      ...{ type: "range", ...range, "data-focus": `slider-${dimension}` },
      "aria-label": `Index in dimension ${dimension}`,
      oninput: () => choose(slider),
    });
    const number: HTMLInputElement = h("input", {
      ...{ type: "number", ...range, "data-focus": `number-${dimension}` },
      "aria-label": `Index in dimension ${dimension}, as a number`,
      oninput: () => choose(number),
      onchange: () => (number.value = slider.value),
    });
    this.fields.set(dimension, { slider, number });
    return h("div.fxi-axis.fxi-small.fxi-row.fxi-axis-index", [
      h("span", { "aria-hidden": "true" }, `dim ${dimension}`),
      slider,
      number,
      h("span.fxi-muted", { "aria-hidden": "true" }, `of ${grouped(this.shape[dimension]!)}`),
    ]);
  }

  /** Says an index that nobody can change. */
  private place(dimension: number): HTMLElement {
    const words = `dim ${dimension}: index ${this.axes.index[dimension]} of ${this.shape[dimension]}`;
    return h("span.fxi-axis.fxi-small.fxi-row.fxi-muted", words);
  }

  private ask(axes: Axes): void {
    this.axes = axes;
    this.choose(axes);
  }
}
