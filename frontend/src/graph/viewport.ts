/** Where a picture lies in its window: `screen = picture * scale + (x, y)`. */

import { around, clamp, middle, type Point, type Rectangle, type Size } from "../base/rectangles";

export interface Viewport {
  x: number;
  y: number;
  scale: number;
}

export const SMALLEST_SCALE = 0.02;
export const LARGEST_SCALE = 6;
/** Below this, words cannot be read: a first picture starts at its top instead of showing all of itself. */
export const READABLE_SCALE = 0.62;
/** Small pictures are enlarged so far. */
const LARGEST_FIRST = 1.5;
const MARGIN = 12;
const NEAR = 40;
/** As much of a picture is always in sight, in pixels of the window. */
const IN_SIGHT = 64;

/** Zooms so that the point of the picture under (x, y) stays there. */
export function zoomAt(viewport: Viewport, x: number, y: number, factor: number): Viewport {
  const scale = clamp(viewport.scale * factor, SMALLEST_SCALE, LARGEST_SCALE);
  const ratio = scale / viewport.scale;
  return { x: x - (x - viewport.x) * ratio, y: y - (y - viewport.y) * ratio, scale };
}

/** Shows a rectangle of the picture as large as the window allows, at most in a given size. */
export function fit(content: Rectangle, window: Size, largest = 1): Viewport {
  const across = (window.width - 2 * MARGIN) / Math.max(1, content.width);
  const down = (window.height - 2 * MARGIN) / Math.max(1, content.height);
  return centre(content, window, clamp(Math.min(across, down), SMALLEST_SCALE, largest));
}

/** Shows all of a picture if it can be read so, or else where it begins at a size that can. */
export function firstLook(content: Rectangle, window: Size): Viewport {
  const all = fit(content, window, LARGEST_FIRST);
  if (all.scale >= READABLE_SCALE) return all;
  const isLong = content.height / window.height >= content.width / window.width;
  const across = isLong
    ? (window.width - 2 * MARGIN) / Math.max(1, content.width)
    : (window.height - 2 * MARGIN) / Math.max(1, content.height);
  const scale = clamp(across, READABLE_SCALE, 0.9);
  const middle = centre(content, window, scale);
  return isLong ? { ...middle, y: MARGIN - content.y * scale } : { ...middle, x: MARGIN - content.x * scale };
}

/** Moves as little as possible so that a rectangle of the picture is inside the window. */
export function bringInto(viewport: Viewport, target: Rectangle, window: Size): Viewport {
  return {
    scale: viewport.scale,
    x:
      viewport.x + shift(viewport.x + target.x * viewport.scale, target.width * viewport.scale, window.width),
    y:
      viewport.y +
      shift(viewport.y + target.y * viewport.scale, target.height * viewport.scale, window.height),
  };
}

/**
 * Moves as little as possible so that all rectangles are inside the window, or the first if they are far
 * apart.
 */
export function bringAll(viewport: Viewport, targets: Rectangle[], window: Size, smallest: number): Viewport {
  const all = around(targets);
  if (!all) return viewport;
  const room = fit(all, window, viewport.scale);
  if (room.scale >= viewport.scale) return bringInto(viewport, all, window);
  return room.scale >= smallest ? room : bringInto(viewport, targets[0]!, window);
}

/** Moves as little as possible so that a part of the content stays in the window. */
export function keepInSight(viewport: Viewport, content: Rectangle, window: Size): Viewport {
  const hold = (start: number, length: number, room: number): number => {
    const least = Math.min(IN_SIGHT, length, room / 2);
    return clamp(start, least - length, room - least);
  };
  const { x, y, scale } = viewport;
  return {
    scale,
    x: hold(x + content.x * scale, content.width * scale, window.width) - content.x * scale,
    y: hold(y + content.y * scale, content.height * scale, window.height) - content.y * scale,
  };
}

/** Shows a rectangle in the middle of the window. */
export function centre(target: Rectangle, window: Size, scale: number): Viewport {
  return {
    scale,
    x: window.width / 2 - (target.x + target.width / 2) * scale,
    y: window.height / 2 - (target.y + target.height / 2) * scale,
  };
}

/** Keeps what is seen of a part of an old picture where it is on the screen, although it lies elsewhere in a new one. */
export function follow(
  viewport: Viewport,
  before: Rectangle,
  after: Rectangle,
  window: Size,
  scale = viewport.scale,
): Viewport {
  const visible = visiblePart(viewport, window);
  const x = clamp(middle(before).x, visible.x, visible.x + visible.width);
  const y = clamp(before.y, visible.y, visible.y + visible.height);
  const along = (point: number, start: number, length: number): number =>
    clamp((point - start) / Math.max(1, length), 0, 1);
  const right = after.x + along(x, before.x, before.width) * after.width;
  const down = after.y + along(y, before.y, before.height) * after.height;
  return {
    scale,
    x: viewport.x + x * viewport.scale - right * scale,
    y: viewport.y + y * viewport.scale - down * scale,
  };
}

/**
 * Returns how far what is near a point of one picture lies from where it is in another; null if nothing is in
 * both.
 */
export function shiftNear(point: Point, parts: [here: Rectangle, there: Rectangle][]): Point | null {
  let [x, y, all] = [0, 0, 0];
  for (const [here, there] of parts) {
    const [from, to] = [middle(here), middle(there)];
    // The nearest parts count most, but none alone: from one to the next, nothing jumps.
    const weight = ((from.x - point.x) ** 2 + (from.y - point.y) ** 2 + NEAR ** 2) ** -2;
    x += weight * (to.x - from.x);
    y += weight * (to.y - from.y);
    all += weight;
  }
  return all > 0 ? { x: x / all, y: y / all } : null;
}

/** Returns the point of rectangles by which they stand side by side with others: of those too far apart, the first's. */
export function headOf(areas: Rectangle[], window: Size): Point {
  const all = around(areas)!;
  const isTogether = all.height <= window.height && all.width <= window.width;
  const { x, y, width, height } = isTogether ? all : areas[0]!;
  return { x: x + width / 2, y: y + Math.min(height, NEAR) / 2 };
}

export function difference(from: Point, to: Point): Point {
  return { x: to.x - from.x, y: to.y - from.y };
}

/** Returns the part of the picture that the window shows. */
export function visiblePart(viewport: Viewport, window: Size): Rectangle {
  return {
    x: -viewport.x / viewport.scale,
    y: -viewport.y / viewport.scale,
    width: window.width / viewport.scale,
    height: window.height / viewport.scale,
  };
}

function shift(start: number, length: number, room: number): number {
  if (length > room - 2 * MARGIN) return MARGIN - start;
  if (start < MARGIN) return MARGIN - start;
  const end = start + length;
  return end > room - MARGIN ? room - MARGIN - end : 0;
}
