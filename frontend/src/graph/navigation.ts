/** Moving through a picture with arrow keys. */

import type { LivePicture } from "./live_picture";
import type { Rectangle } from "../base/rectangles";

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
      closest(picture, ends, (area) => Math.hypot(middle(area) - middle(here), area.y - here.y)) ??
      inside(picture, from, direction)
    );
  }
  const sign = direction === "right" ? 1 : -1;
  const beside = [...picture.areas].filter(([id, area]) => {
    const kind = picture.box(id)?.kind;
    return id !== from && kind !== "cluster" && kind !== "chip" && sign * (middle(area) - middle(here)) > 1;
  });
  return closest(
    picture,
    beside.map(([id]) => id),
    (area) =>
      Math.abs(middle(area) - middle(here)) +
      4 * Math.abs(area.y + area.height / 2 - here.y - here.height / 2),
  );
}

/** Returns the box nearest to a point, to start from when nothing is selected. */
export function nearest(picture: LivePicture, x: number, y: number): string | null {
  const ids = [...picture.areas.keys()].filter((id) => picture.box(id)?.kind !== "cluster");
  return closest(picture, ids, (area) => Math.hypot(middle(area) - x, area.y + area.height / 2 - y));
}

/** From an opened group, down leads to its first box and up to the box above it. */
function inside(picture: LivePicture, from: string, direction: Direction): string | null {
  const area = picture.areas.get(from);
  if (!area || picture.box(from)?.kind !== "cluster") return null;
  const ids = [...picture.areas.keys()].filter((id) => {
    const other = picture.areas.get(id)!;
    if (id === from || picture.box(id)?.kind === "cluster" || picture.box(id)?.kind === "chip") return false;
    const within =
      other.x >= area.x &&
      other.x + other.width <= area.x + area.width &&
      other.y >= area.y &&
      other.y + other.height <= area.y + area.height;
    return direction === "down" ? within : other.y + other.height <= area.y;
  });
  return closest(picture, ids, (other) => Math.hypot(middle(other) - middle(area), other.y - area.y));
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

const middle = (area: Rectangle): number => area.x + area.width / 2;
