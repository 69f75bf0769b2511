/** Names of opened groups stay in sight while a part of the group is. */

import { holds, type Point, type Rectangle } from "../base/rectangles";

/** Room that has to be left of a group for its name. */
const SHORTEST = 120;

/**
 * Returns how far the name of each group is moved from its place at the top left of the group.
 *
 * `groups` are in the order of the picture, outer ones first; names of groups inside of one another stand below
 * one another, each in a `line` of that height.
 */
export function shifts(
  groups: ReadonlyMap<string, Rectangle>,
  visible: Rectangle,
  line: number,
): Map<string, Point> {
  const moved: { area: Rectangle; bottom: number }[] = [];
  const found = new Map<string, Point>();
  for (const [id, area] of groups) {
    const above = moved.filter(({ area: outer }) => holds(outer, area)).map(({ bottom }) => bottom);
    const top = Math.max(visible.y, ...above);
    const y = between(top - area.y, area.height - line);
    const x = between(visible.x - area.x, area.width - SHORTEST);
    found.set(id, { x, y });
    if (y > 0) moved.push({ area, bottom: area.y + y + line });
  }
  return found;
}

function between(value: number, largest: number): number {
  return Math.max(0, Math.min(value, largest));
}
