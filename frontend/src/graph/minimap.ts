/** The whole picture in a corner, with the part that the window shows. */

import { s } from "../base/dom";
import type { LivePicture } from "./live_picture";
import type { Rectangle, Size } from "./viewport";

const WIDTH = 132;
const HEIGHT = 150;
/** A graph that is far taller than wide is drawn wider than it is, or there would be nothing to see. */
const NARROWEST = 46;

export class Minimap {
  readonly element: SVGSVGElement;
  private readonly frame = s("rect", { class: "fxi-minimap-frame", rx: 2 });
  private picture: Size = { width: 1, height: 1 };

  constructor(private readonly moveTo: (x: number, y: number) => void) {
    this.element = s("svg", { class: "fxi-minimap", "aria-hidden": "true" });
    this.element.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      event.preventDefault();
      this.element.setPointerCapture?.(event.pointerId);
      this.go(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) this.go(event);
    });
    this.element.addEventListener("dblclick", (event) => event.stopPropagation());
  }

  show(live: LivePicture): void {
    const { width, height } = live.picture;
    const scale = Math.min(WIDTH / Math.max(1, width), HEIGHT / Math.max(1, height));
    const [w, h] = [Math.max(NARROWEST, width * scale), Math.max(NARROWEST, height * scale)];
    this.picture = { width, height };
    this.element.setAttribute("width", String(w));
    this.element.setAttribute("height", String(h));
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const rectangles = [...live.areas].flatMap(([id, area]) => {
      const box = live.box(id);
      if (!box || box.kind === "chip") return [];
      const rectangle = s("rect", {
        ...area,
        rx: 4,
        class: box.kind === "cluster" ? "fxi-minimap-cluster" : "fxi-minimap-box",
      });
      rectangle.dataset["of"] = id;
      const mark = live.elements.get(id)?.style.getPropertyValue("--mark");
      if (mark && box.kind !== "cluster") {
        rectangle.classList.add("fxi-minimap-changed");
        rectangle.style.setProperty("--mark", mark);
      }
      return [rectangle];
    });
    this.element.replaceChildren(...rectangles, this.frame);
  }

  /** Lights up the boxes that hold what is found. */
  light(found: Record<string, number> | null): void {
    for (const rectangle of this.element.querySelectorAll<SVGRectElement>("[data-of]")) {
      rectangle.classList.toggle("fxi-minimap-found", (found?.[rectangle.dataset["of"]!] ?? 0) > 0);
    }
  }

  /** Shows which part is visible; hides itself when that is everything. */
  update(visible: Rectangle, live: LivePicture): void {
    const { width, height } = live.picture;
    const slack = 8;
    const all =
      visible.x <= slack &&
      visible.y <= slack &&
      visible.x + visible.width >= width - slack &&
      visible.y + visible.height >= height - slack;
    this.element.style.display = all ? "none" : "";
    const x = Math.max(0, visible.x);
    const y = Math.max(0, visible.y);
    this.frame.setAttribute("x", String(x));
    this.frame.setAttribute("y", String(y));
    this.frame.setAttribute("width", String(Math.max(0, Math.min(width, visible.x + visible.width) - x)));
    this.frame.setAttribute("height", String(Math.max(0, Math.min(height, visible.y + visible.height) - y)));
  }

  private go(event: PointerEvent): void {
    const bounds = this.element.getBoundingClientRect();
    const { width, height } = this.picture;
    this.moveTo(
      ((event.clientX - bounds.left) / bounds.width) * width,
      ((event.clientY - bounds.top) / bounds.height) * height,
    );
  }
}
