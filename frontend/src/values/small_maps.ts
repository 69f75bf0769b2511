/** Small maps of a tensor beside each other: one for each index in a dimension, such as all heads of an attention. */

import { button, fill, h } from "../base/dom";
import { numbersOf } from "../base/values";
import { colourOf, scaleOf, type Colours } from "./colour_scale";
import type { TensorMap } from "../base/wire";

export class SmallMaps {
  readonly element = h("div", { class: "fxi-small-maps", role: "group", hidden: true });
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
    fill(
      this.element,
      this.canvases.map((canvas, i) =>
        button(
          {
            ...{ class: "fxi-small-map", title: `dim ${dimension}: ${first + i}` },
            "aria-label": `Index ${first + i} of dim ${dimension}`,
            "aria-pressed": String(index[dimension] === first + i),
            onclick: () => this.choose(index.map((place, d) => (d === dimension ? first + i : (place ?? 0)))),
          },
          canvas,
          h("span", {}, String(first + i)),
        ),
      ),
    );
  }

  draw(colours: Colours): void {
    const small = this.map?.small;
    if (!small) return;
    const cells = numbersOf(small.numbers, small.cells);
    const scale = scaleOf(cells);
    const [rows, columns] = small.size;
    this.canvases.forEach((canvas, i) => {
      const context = canvas.getContext?.("2d");
      if (!context) return;
      const image = context.createImageData(columns, rows);
      for (let cell = 0; cell < rows * columns; cell++)
        image.data.set(colourOf(cells[i * rows * columns + cell]!, scale, colours), cell * 4);
      context.putImageData(image, 0, 0);
    });
  }
}
