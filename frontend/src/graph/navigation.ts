/** Moving through a picture with arrow keys. */

import type { LivePicture } from "./live_picture";
import { holds, middle, type Rectangle } from "../base/rectangles";

export type Direction = "up" | "down" | "left" | "right";

/** Returns the box that an arrow key leads to: along edges up and down, to neighbours left and right. */
export function neighbour(picture: LivePicture, from: string, direction: Direction): string | null {
  const here = picture.areas.get(from);
  if (!here) return null;
  const { edges } = picture.picture;
  if (direction === "down" || direction === "up") {
    const ids = (direction === "down" ? picture.leaving : picture.entering).get(from) ?? [];
    const ends = ids.map((id) => (direction === "down" ? edges[id]!.target : edges[id]!.source));
    return (
      closest(picture, ends, (area) => Math.hypot(across(here, area), area.y - here.y)) ??
      inside(picture, from, direction)
    );
  }
  const sign = direction === "right" ? 1 : -1;
  const beside = others(picture, from).filter((id) => sign * across(here, picture.areas.get(id)!) > 1);
  return closest(
    picture,
    beside,
    (area) => Math.abs(across(here, area)) + 4 * Math.abs(middle(area).y - middle(here).y),
  );
}

/** Returns the box nearest to a point, to start from when nothing is selected. */
export function nearest(picture: LivePicture, x: number, y: number): string | null {
  const ids = [...picture.areas.keys()].filter((id) => picture.box(id)?.kind !== "cluster");
  return closest(picture, ids, (area) => Math.hypot(middle(area).x - x, middle(area).y - y));
}

/** From an opened group, down leads to its first box and up to the box above it. */
function inside(picture: LivePicture, from: string, direction: Direction): string | null {
  const area = picture.areas.get(from);
  if (!area || picture.box(from)?.kind !== "cluster") return null;
  const ids = others(picture, from).filter((id) => {
    const other = picture.areas.get(id)!;
    return direction === "down" ? holds(area, other) : other.y + other.height <= area.y;
  });
  return closest(picture, ids, (other) => Math.hypot(across(area, other), other.y - area.y));
}

function closest(picture: LivePicture, ids: string[], distance: (area: Rectangle) => number): string | null {
  let [best, least] = [null as string | null, Infinity];
  for (const id of ids) {
    const area = picture.areas.get(id);
    const away = area ? distance(area) : Infinity;
    if (away < least) [best, least] = [id, away];
  }
  return best;
}

/** Returns the boxes of nodes and closed groups but one. */
function others(picture: LivePicture, from: string): string[] {
  return [...picture.areas.keys()].filter((id) => {
    const kind = picture.box(id)?.kind;
    return id !== from && kind !== "cluster" && kind !== "chip";
  });
}

/** Returns how far to the right of an area another lies. */
function across(from: Rectangle, to: Rectangle): number {
  return middle(to).x - middle(from).x;
}
