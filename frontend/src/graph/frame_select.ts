/** A frame that is drawn over a graph, and the boxes in it. */

import { h } from "../base/dom";
import { holds, type Rectangle } from "../base/rectangles";

/** A pointer that has moved by less was not dragged. */
const LEAST = 4;

/**
 * Follows a pointer that has gone down. `framed` is called with the boxes that are whole within the frame, `clicked` if
 * there is none.
 */
export function drawFrame(
  element: HTMLElement,
  down: PointerEvent,
  framed: (boxes: string[]) => void,
  clicked: () => void,
): void {
  const frame = h("div.fxi-frame");
  const bounds = element.getBoundingClientRect();
  const gesture = new AbortController();
  const { signal } = gesture;
  let area: Rectangle | null = null;
  const move = (event: PointerEvent): void => {
    if (event.pointerId !== down.pointerId) return;
    const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
    if (!area && Math.hypot(dx, dy) < LEAST) return;
    const [x, y] = [down.clientX + Math.min(dx, 0), down.clientY + Math.min(dy, 0)];
    area = { x, y, width: Math.abs(dx), height: Math.abs(dy) };
    frame.style.translate = `${x - bounds.left}px ${y - bounds.top}px`;
    Object.assign(frame.style, { width: `${area.width}px`, height: `${area.height}px` });
    element.append(frame);
  };
  const end = (event: PointerEvent): void => {
    if (event.pointerId !== down.pointerId) return;
    gesture.abort();
    frame.remove();
    if (event.type !== "pointerup") return;
    if (area) framed(boxesIn(element, area));
    else clicked();
  };
  window.addEventListener("pointermove", move, { signal });
  window.addEventListener("pointerup", end, { signal });
  window.addEventListener("pointercancel", end, { signal });
}

function boxesIn(element: HTMLElement, area: Rectangle): string[] {
  const inside = [...element.querySelectorAll<SVGElement>("[data-box]")].filter((box) => {
    const shape = box.querySelector(":scope > .fx-shape")?.getBoundingClientRect();
    return shape && holds(area, shape);
  });
  return [...new Set(inside.map((box) => box.dataset["box"]!))];
}
