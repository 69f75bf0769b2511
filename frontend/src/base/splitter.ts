/** A border that can be dragged, or moved with arrow keys. */

import { h } from "./dom";

const KEY_STEP = 24;

export interface SplitterOptions {
  label: string;
  /** Whether the border runs down, between columns. */
  vertical: boolean;
  /** Whether the size grows when the border moves right or down. */
  grows: boolean;
  /** Its place in a grid. */
  area?: string;
  size(): number;
  resize(size: number): void;
  done?(): void;
}

export function splitter(options: SplitterOptions): HTMLElement {
  const { label, vertical, grows, size, resize } = options;
  const sign = grows ? 1 : -1;
  const bar = h(vertical ? "div.fxi-splitter.fxi-splitter-v" : "div.fxi-splitter.fxi-splitter-h", {
    role: "separator",
    tabindex: 0,
    style: options.area && `grid-area: ${options.area}`,
    "aria-label": label,
    "aria-orientation": vertical ? "vertical" : "horizontal",
    "aria-valuemin": 0,
    "aria-valuemax": 4000,
    "aria-valuenow": 0,
  });
  const say = (): void => {
    const pixels = Math.round(size());
    bar.setAttribute("aria-valuenow", String(pixels));
    bar.setAttribute("aria-valuetext", `${pixels} pixels`);
  };
  bar.addEventListener("focus", say);
  bar.addEventListener("pointerdown", (down) => {
    down.preventDefault();
    bar.setPointerCapture?.(down.pointerId);
    const before = size();
    const move = (event: PointerEvent): void =>
      resize(before + sign * (vertical ? event.clientX - down.clientX : event.clientY - down.clientY));
    const end = (): void => {
      bar.removeEventListener("pointermove", move);
      options.done?.();
    };
    bar.addEventListener("pointermove", move);
    bar.addEventListener("lostpointercapture", end, { once: true });
  });
  bar.addEventListener("keydown", (event) => {
    const step = {
      ArrowRight: vertical ? 1 : 0,
      ArrowLeft: vertical ? -1 : 0,
      ArrowDown: vertical ? 0 : 1,
      ArrowUp: vertical ? 0 : -1,
    }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    resize(size() + sign * step * KEY_STEP);
    say();
    options.done?.();
  });
  return bar;
}
