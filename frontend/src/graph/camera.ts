/** Which part of the graph the window shows, and how it gets there. */

import type { LivePicture } from "./live_picture";
import { areasOf, filled, placement, wholeOf, withBox, type Look, type Place, type Wish } from "./placement";
import { around, middle, overlap, type Point, type Rectangle, type Size } from "../base/rectangles";
import {
  bringAll,
  bringInto,
  centre,
  difference,
  fit,
  headOf,
  keepInSight,
  READABLE_SCALE,
  shiftNear,
  visiblePart,
  zoomAt,
  type Viewport,
} from "./viewport";

const NOWHERE: Place = { x: 0, y: 0, width: 0, height: 0, room: { width: 0, height: 0 } };
/** So many pictures are shown again as they were. */
const MOST_KEPT = 12;
const STILL_MS = 300;
const GLIDE_MS = 220;
/** At least this large is shown what somebody asked for. */
const NEAR_SCALE = 0.85;
/** Smaller, several boxes are not shown at once. */
const SMALL_SCALE = 0.4;
/** Below these, words are hidden, and then details. */
const [FAR_SCALE, VERY_FAR_SCALE] = [0.56, 0.16];

export interface CameraEvents {
  /** The window shows another part. */
  changed(): void;
  /** Somebody has moved or zoomed the graph. */
  moved(gliding: boolean): void;
}

export class Camera {
  viewport: Viewport = { x: 0, y: 0, scale: 1 };
  private place: Place = NOWHERE;
  private live: LivePicture | null = null;
  /** What was looked at before the picture or its window changed; where to look now follows from it. */
  private before: Look | null = null;
  private wish: Wish = { anchor: null, selected: [], some: [] };
  /** How each of the last pictures was looked at, and how often somebody had moved until then. */
  private readonly kept = new Map<string, Look & { moves: number }>();
  private moves = 0;
  /** Whether somebody has moved it: then what is looked at stays where it is. */
  private moved = false;
  /** Boxes to go to as soon as there is a window. */
  private awaited: string[] = [];
  /** What it goes by when it looks like another: what is selected, what is in both, or nothing. */
  private guide: "selected" | "shared" | null = null;
  /** Until when it is on its way back to what the graph beside it shows. */
  private backUntil = 0;
  private still: ReturnType<typeof setTimeout> | undefined;

  /** Moves `layer` within `element`. */
  constructor(
    private readonly element: HTMLElement,
    private readonly layer: HTMLElement,
    private readonly events: CameraEvents,
  ) {}

  dispose(): void {
    clearTimeout(this.still);
  }

  /** The part of the graph that can be seen. */
  get visible(): Rectangle {
    return visiblePart(this.viewport, this.place);
  }

  /** Takes another picture; what is looked at stays where it was, and a picture that was shown before as it was. */
  show(live: LivePicture, selected: string[]): void {
    const look = this.look();
    this.live = live;
    this.place = this.placeNow();
    this.wish = { anchor: this.wish.anchor, selected, some: [] };
    if (look) this.keep(look);
    const kept = this.kept.get(live.picture.svg);
    this.before = this.wish.anchor === null && kept?.moves === this.moves ? kept : look;
    this.moved = this.before?.moved ?? this.moved;
    this.settle();
    this.wish.anchor = null;
  }

  /** Whether names are all that can be read. */
  get isFar(): boolean {
    return this.viewport.scale < FAR_SCALE;
  }

  /** Shows the next picture as if it were the first. */
  startOver(): void {
    this.moved = false;
    this.moves += 1;
  }

  /** Says which box should not move when the next picture comes. */
  anchorAt(box: string): void {
    this.wish.anchor = box;
    this.moved = true;
  }

  /** Keeps boxes in sight from now on; somebody has selected them, here or elsewhere. */
  hold(selected: string[], isHere = false): void {
    if (isHere) this.rest();
    this.wish.selected = selected;
    const areas = this.live ? areasOf(this.live, selected) : [];
    if (areas.length && !areas.some((area) => overlap(area, this.visible))) this.bring(selected);
  }

  /** Takes notice of how large its window is. */
  measure(): boolean {
    const { width, height } = this.place;
    const place = this.placeNow();
    if (width === place.width && height === place.height) return false;
    // As long as nobody moves it, panels that open and close come to the same whatever their order.
    if (width > 0) this.before ??= this.look();
    this.place = place;
    this.settle();
    if (width === 0) this.focus(this.awaited.splice(0), false);
    return true;
  }

  private settle(): void {
    if (this.live && this.place.width > 0) this.set(placement(this.before, this.live, this.place, this.wish));
  }

  /** What is looked at now is what stays from now on. */
  private rest(): void {
    this.moved = true;
    this.moves += 1;
    this.before = null;
    this.wish.some = [];
  }

  private look(): Look | null {
    const { live, viewport, place, moved } = this;
    return live && place.width > 0 ? { live, viewport, place, moved } : null;
  }

  private keep(look: Look): void {
    const { svg } = look.live.picture;
    this.kept.delete(svg);
    this.kept.set(svg, { ...look, moves: this.moves });
    if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value!);
  }

  /** Brings boxes into the window, nodes rather than groups; gently: the nearest, only if none of them can be seen. */
  focus(boxes: string[], gently: boolean): void {
    const nodes = boxes.filter((id) => this.live?.box(id)?.kind === "op");
    const wanted = nodes.length ? nodes : boxes;
    const areas = this.live ? areasOf(this.live, wanted) : [];
    const everything = around(areas);
    if (!everything || !this.live) return;
    if (this.place.width === 0) {
      this.awaited = boxes;
      return;
    }
    const { visible } = this;
    if (gently) {
      this.before ??= this.look();
      this.wish.some = wanted;
      return this.settle();
    }
    const room = fit(everything, this.place, 1);
    const goTo = (viewport: Viewport): void => this.go(filled(viewport, wholeOf(this.live!), this.place));
    if (areas.length > 1 && room.scale >= READABLE_SCALE) return goTo(room);
    const first = areas[0]!;
    const scale = Math.max(this.viewport.scale, NEAR_SCALE);
    if (scale === this.viewport.scale && overlap(first, visible)) return this.reveal(first);
    goTo(centre(first, this.place, scale));
  }

  /** Brings boxes into the window, all of them if they can be read then. */
  bring(boxes: string[]): void {
    const areas = this.live ? areasOf(this.live, boxes) : [];
    if (areas.length === 0 || this.place.width === 0) return;
    const viewport = bringAll(this.viewport, areas, this.place, SMALL_SCALE);
    if (viewport.x === this.viewport.x && viewport.y === this.viewport.y) return;
    this.before = null;
    this.moved = true;
    this.guide = null;
    this.glide(viewport);
  }

  /** Moves as little as needed to show an area. */
  reveal(area: Rectangle): void {
    this.go(bringInto(this.viewport, area, this.place));
  }

  showAll(): void {
    if (!this.live) return;
    this.rest();
    this.moved = false;
    this.glide(fit(wholeOf(this.live), this.place));
  }

  /** Zooms around a point of the window; around its middle if none is given. */
  zoomBy(factor: number, at?: Point): void {
    const { x, y } = at ?? { x: this.place.width / 2, y: this.place.height / 2 };
    const zoomed = zoomAt(this.viewport, x, y, factor);
    this.go(this.live ? withBox(zoomed, this.live, this.place) : zoomed, at === undefined);
  }

  /**
   * Shows what another window shows, at the same place and size, as far as it is here too. What is selected there
   * stands where `own` stands here, as long as it is in sight.
   */
  lookLike(other: Camera, gliding: boolean, theirs: string[], own: string[]): void {
    const { live } = this;
    if (!live || !other.live || this.place.width === 0) return;
    const seen = middle(other.visible);
    const [there, here] = [areasOf(other.live, theirs), areasOf(live, own)];
    const isHeld = here.length > 0 && there.some((area) => overlap(area, other.visible));
    const shift = isHeld
      ? difference(headOf(there, other.visible), headOf(here, this.roomAt(other.viewport.scale)))
      : shiftNear(
          seen,
          [...other.live.areas].flatMap(([id, area]): [Rectangle, Rectangle][] => {
            const same = live.box(id)?.kind === "cluster" ? undefined : live.areas.get(id);
            return same ? [[area, same]] : [];
          }),
        );
    if (!shift) return;
    const guide = isHeld ? "selected" : "shared";
    this.before = null;
    this.moved = other.moved;
    if (this.guide !== guide) this.backUntil = performance.now() + GLIDE_MS;
    this.guide = guide;
    this.layer.classList.toggle("fxi-gliding", gliding || performance.now() < this.backUntil);
    const place = { x: seen.x + shift.x, y: seen.y + shift.y, width: 0, height: 0 };
    this.set(withBox(centre(place, this.place, other.viewport.scale), live, this.place));
  }

  /** Goes where somebody wants to. */
  go(viewport: Viewport, gliding = true): void {
    this.rest();
    this.layer.classList.toggle("fxi-gliding", gliding);
    this.set(
      this.live
        ? withBox(keepInSight(viewport, wholeOf(this.live), this.place), this.live, this.place)
        : viewport,
    );
    this.events.moved(gliding);
  }

  /** How much of a picture the window shows in a size. */
  private roomAt(scale: number): Size {
    return { width: this.place.width / scale, height: this.place.height / scale };
  }

  private placeNow(): Place {
    const { clientWidth: width, clientHeight: height } = this.element;
    const inspector = this.element.closest(".fxlab-inspector");
    const { left, top } = this.element.getBoundingClientRect();
    if (!inspector) return { ...NOWHERE, width, height };
    const room = inspector.getBoundingClientRect();
    return { x: left - room.left, y: top - room.top, width, height, room };
  }

  private glide(viewport: Viewport): void {
    this.layer.classList.add("fxi-gliding");
    this.set(viewport);
  }

  private set(viewport: Viewport): void {
    this.viewport = viewport;
    const { x, y, scale } = viewport;
    this.layer.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    this.element.classList.toggle("fxi-far", this.isFar);
    this.element.classList.toggle("fxi-very-far", scale < VERY_FAR_SCALE);
    this.element.style.setProperty("--grid", `${24 * scale}px`);
    this.element.style.backgroundPosition = `${x}px ${y}px`;
    this.events.changed();
    // A layer of its own moves without repainting; once it rests it is painted again, sharp.
    this.layer.classList.add("fxi-moving");
    clearTimeout(this.still);
    this.still = setTimeout(() => this.layer.classList.remove("fxi-moving", "fxi-gliding"), STILL_MS);
  }
}
