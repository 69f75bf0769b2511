/** Decides where to look when a picture, or the size of its window, is another than before. */

import type { LivePicture } from "./live_picture";
import { around, clamp, holds, middle, overlap } from "../base/rectangles";
import type { Point, Rectangle, Size } from "../base/rectangles";
import {
  bringInto,
  firstLook,
  fit,
  follow,
  keepInSight,
  READABLE_SCALE,
  visiblePart,
  type Viewport,
} from "./viewport";

/** As much of the width and of the height that a picture could fill is filled: more than half of both. */
const FILLED = 0.75;
/** A change that comes into sight has as much of the window's height above it and below. */
const AROUND_CHANGE = 0.25;

/** Where the window is in the inspector, and how large both are. */
export interface Place extends Rectangle {
  room: Size;
}

/** What is looked at. */
export interface Look {
  live: LivePicture;
  viewport: Viewport;
  place: Place;
  /** Whether somebody has moved it or selected something; what is seen at first has no place to be kept. */
  moved: boolean;
}

export interface Wish {
  /** The box that should not move. */
  anchor: string | null;
  /** Boxes that stay in sight. */
  selected: string[];
  /** Boxes of which the nearest should be in sight. */
  some: string[];
}

/** Returns where to look at a picture in a window, after something else was looked at, or nothing. */
export function placement(before: Look | null, live: LivePicture, place: Place, wish: Wish): Viewport {
  const isThere = before?.live.picture.svg === live.picture.svg && isSame(before.place, place);
  const whole = wholeOf(live);
  const first = firstLook(whole, place);
  const selected = wish.selected.filter((id) => !before || isSeen(before, id));
  const isFirst =
    !before?.moved && selected.length === 0 && (first.scale >= READABLE_SCALE || before?.live === live);
  const followed = before && !isFirst ? whereItWas(before, live, place, [wish.anchor, ...selected]) : null;
  let viewport = isThere ? before!.viewport : filled(followed ?? first, whole, place);
  const wanted = areasOf(live, selected).slice(0, 1);
  const near = wanted[0] ?? visiblePart(before ? viewport : first, place);
  const changed = nearest(areasOf(live, wish.some), middle(near));
  // What nobody has moved has no place to be kept: a change is shown with all of the width there is.
  const spare = place.width - whole.width * viewport.scale;
  if (changed && !before?.moved && wanted.length === 0 && spare > 0) viewport = { ...viewport, x: spare / 2 };
  const isVisible = !changed || isInSight(changed, visiblePart(viewport, place));
  const above = isVisible || wanted.length > 0 ? 0 : (AROUND_CHANGE * place.height) / viewport.scale;
  const room = changed && { ...changed, y: changed.y - above, height: changed.height + 2 * above };
  viewport = withAll(viewport, room ? [...wanted, room] : wanted, place);
  return withBox(viewport, live, place);
}

export function wholeOf({ picture: { width, height } }: LivePicture): Rectangle {
  return { x: 0, y: 0, width, height };
}

export function areasOf(live: LivePicture, boxes: string[]): Rectangle[] {
  return boxes.flatMap((id) => live.areas.get(id) ?? []);
}

/** Keeps a box in sight, the nearest if there is none: between boxes that are far apart there is nothing to see. */
export function withBox(viewport: Viewport, live: LivePicture, window: Size): Viewport {
  const boxes = [...live.areas].flatMap(([id, area]) => (live.box(id)?.kind === "cluster" ? [] : [area]));
  const visible = visiblePart(viewport, window);
  const closest = nearest(boxes, middle(visible));
  if (!closest || boxes.some((area) => overlap(area, visible))) return viewport;
  return keepInSight(viewport, closest, window);
}

/** Leaves a box where it was on the screen: the first of those given, or else that nearest to what was looked at. */
function whereItWas(
  { live: was, viewport, place: from }: Look,
  live: LivePicture,
  place: Place,
  anchors: (string | null)[],
): Viewport | null {
  const [whole, visible] = [wholeOf(live), visiblePart(viewport, from)];
  const isAll = holds(visible, wholeOf(was));
  const all = fit(whole, place);
  // What has been seen as a whole stays whole as long as it can be read; a panel that opens moves nothing.
  const isPanel = was === live && isSame(from.room, place.room);
  if (isAll && !isPanel && all.scale >= READABLE_SCALE && all.scale < viewport.scale) return all;
  const away = (area: Rectangle): number =>
    distance(area, middle(visible)) + (overlap(area, visible) ? 0 : 1e9);
  const inBoth = [...was.areas].filter(([id]) => live.areas.has(id));
  const anchor =
    anchors.find((id) => id !== null && was.areas.has(id) && live.areas.has(id)) ??
    inBoth.sort(([, a], [, b]) => away(a) - away(b))[0]?.[0];
  if (anchor == null) return null;
  const smallest = was === live ? viewport.scale : Math.min(all.scale, READABLE_SCALE);
  const scale = Math.max(viewport.scale, smallest);
  const { x, y } = follow(viewport, was.areas.get(anchor)!, live.areas.get(anchor)!, from, scale);
  // A panel that opens beside it moves nothing; a room that changes keeps its middle.
  const [right, down] = isSame(from.room, place.room)
    ? [from.x - place.x, from.y - place.y]
    : [(place.width - from.width) / 2, (place.height - from.height) / 2];
  return { scale, x: x + right, y: y + down };
}

/** Fills the window with as much of the picture as should be seen; one that fits lies in it as a whole. */
export function filled({ x, y, scale }: Viewport, whole: Rectangle, window: Size): Viewport {
  const hold = (start: number, length: number, room: number): number => {
    const least = length <= room ? length : FILLED * room;
    return clamp(start, least - length, room - least);
  };
  return {
    scale,
    x: hold(x, whole.width * scale, window.width),
    y: hold(y, whole.height * scale, window.height),
  };
}

/** Moves as little as possible to show what is not in sight, and zooms out if it is too far apart. */
function withAll(viewport: Viewport, areas: Rectangle[], window: Size): Viewport {
  const all = around(areas);
  const visible = visiblePart(viewport, window);
  if (!all || areas.every((area) => isInSight(area, visible))) return viewport;
  const room = fit(all, window, viewport.scale);
  return room.scale < viewport.scale && areas.length > 1 ? room : bringInto(viewport, all, window);
}

/** Whether all of an area is visible, or a part of one that is larger than the window. */
function isInSight(area: Rectangle, visible: Rectangle): boolean {
  const isLarger = area.width > visible.width || area.height > visible.height;
  return holds(visible, area) || (isLarger && overlap(area, visible));
}

function isSeen({ live, viewport, place }: Look, id: string): boolean {
  const area = live.areas.get(id);
  return !area || overlap(area, visiblePart(viewport, place));
}

function isSame(a: Size, b: Size): boolean {
  return a.width === b.width && a.height === b.height;
}

function nearest(areas: Rectangle[], point: Point): Rectangle | undefined {
  return [...areas].sort((a, b) => distance(a, point) - distance(b, point))[0];
}

function distance(area: Rectangle, { x, y }: Point): number {
  return Math.hypot(middle(area).x - x, middle(area).y - y);
}
