/** What is on the screen in the DOT language, two stages from left to right. */

import type { Overlay, Picture, State } from "../../base/protocol";
import { paintings } from "../../graph/saving/saved_picture";
import type { Data } from "../graphs/data";
import type { Pane, Panes } from "../graphs/panes";
import { placeBoxes } from "./boxes";
import { sideBySide, toDot, type Side } from "./dot";

/** `titles` are those of the stages, the one that is shown first. */
export function savedDot(
  { looks, metrics, paints }: Data,
  panes: Panes,
  { picture, before, overlays, arrangement }: Pick<State, "picture" | "before" | "overlays" | "arrangement">,
  titles: readonly string[],
): string {
  const pictures = [picture, before.picture];
  const painted = [overlays.overlay, overlays.before].flatMap((own, i): [Overlay, Picture][] =>
    own ? [[own, pictures[i]!]] : [],
  );
  const colours = paintings(painted, paints);
  const side = ({ view }: Pane, i: number): Side => ({
    name: titles[i]!,
    view,
    boxes: placeBoxes(view, looks, metrics),
    painting: colours[i] ?? null,
  });
  const [shown, beside] = panes.all.map(side) as [Side, Side?];
  return beside
    ? sideBySide([beside, shown], metrics.edge, arrangement)
    : toDot(shown, metrics.edge, arrangement);
}
