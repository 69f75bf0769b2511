/** Which part of the graph the window shows, and how it gets there. */

import type { LivePicture } from "./live_picture";
import {
  around,
  bringAll,
  bringInto,
  centre,
  firstLook,
  fit,
  follow,
  keepInSight,
  middle,
  overlap,
  shiftNear,
  visiblePart,
  zoomAt,
  type Point,
  type Rectangle,
  type Size,
  type Viewport,
} from "./viewport";

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
  private window: Size = { width: 0, height: 0 };
  /** Where the window is in the inspector, and how large that is. */
  private place: Rectangle = { x: 0, y: 0, width: 0, height: 0 };
  /** Whether something was selected when the window was measured. */
  private wasSelected = false;
  private live: LivePicture | null = null;
  private shown = false;
  /** Whether somebody has moved it: then what is looked at stays where it is. */
  private moved = false;
  private pendingAnchor: string | null = null;
  /** Boxes to go to as soon as there is a window. */
  private awaited: string[] = [];
  /** Whether it went somewhere of its own, to bring something into sight. */
  private isAway = false;
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
    return visiblePart(this.viewport, this.window);
  }

  /** Takes another picture; what is looked at stays where it was, most of all what is selected. */
  show(live: LivePicture, selected: string[]): void {
    const before = this.live;
    this.live = live;
    this.measure(selected);
    if (this.window.width === 0) return;
    if (!before || !this.shown || !this.moved) this.firstLook();
    else this.keepPlace(before, live, selected);
    this.shown = true;
    this.pendingAnchor = null;
  }

  /** Whether names are all that can be read. */
  get isFar(): boolean {
    return this.viewport.scale < FAR_SCALE;
  }

  /** Shows the next picture as if it were the first. */
  startOver(): void {
    this.moved = false;
  }

  /** Says which box should not move when the next picture comes. */
  anchorAt(box: string): void {
    this.pendingAnchor = box;
    this.moved = true;
  }

  /** Takes notice of how large its window is; a panel that opens beside it for what is selected moves nothing. */
  measure(selected?: string[]): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    const [was, before] = [this.window, this.place];
    this.place = this.placeNow();
    const isForSelection = this.wasSelected || (selected ?? []).length > 0;
    if (selected) this.wasSelected = selected.length > 0;
    if (width === was.width && height === was.height) return;
    this.window = { width, height };
    if (!this.live || width === 0) return;
    const area = around(this.areasOf(selected ?? []));
    const wasInSight = area !== null && overlap(area, visiblePart(this.viewport, was));
    const isSameRoom = before.width === this.place.width && before.height === this.place.height;
    if (this.shown && isForSelection && isSameRoom) {
      const { x, y } = this.viewport;
      this.set({ ...this.viewport, x: x + before.x - this.place.x, y: y + before.y - this.place.y });
      if (area) this.holdInSight(area);
    } else if (!this.shown || !this.moved) {
      this.shown = true;
      this.firstLook();
      this.focus(this.awaited.splice(0), false);
    } else {
      const { x, y } = this.viewport;
      const [right, down] = [(width - was.width) / 2, (height - was.height) / 2];
      this.set({ ...this.viewport, x: x + right, y: y + down });
      if (area && wasInSight) this.holdInSight(area);
    }
  }

  /** Keeps an area in the window that has become smaller; of one that does not fit, some part. */
  private holdInSight(area: Rectangle): void {
    const { visible } = this;
    const fits = area.width < visible.width && area.height < visible.height;
    if (fits || !overlap(area, visible)) this.glide(bringInto(this.viewport, area, this.window));
  }

  /** Brings boxes into the window, nodes rather than groups; gently: only if none of them can be seen. */
  focus(boxes: string[], gently: boolean): void {
    const nodes = boxes.filter((id) => this.live?.box(id)?.kind === "op");
    const areas = this.areasOf(nodes.length ? nodes : boxes);
    const everything = around(areas);
    if (!everything) return;
    if (this.window.width === 0) {
      this.awaited = boxes;
      return;
    }
    const { visible } = this;
    if (gently && areas.some((area) => overlap(area, visible))) return;
    const room = fit(everything, this.window, 1);
    if (areas.length > 1 && room.scale >= SMALL_SCALE) return this.go(room);
    const first = areas[0]!;
    const scale = Math.max(this.viewport.scale, NEAR_SCALE);
    if (scale === this.viewport.scale && overlap(first, visible)) return this.reveal(first);
    this.go(centre(first, this.window, scale));
  }

  /** Brings boxes into the window, all of them if they can be read then. */
  bring(boxes: string[]): void {
    const areas = this.areasOf(boxes);
    if (areas.length === 0 || this.window.width === 0) return;
    const viewport = bringAll(this.viewport, areas, this.window, SMALL_SCALE);
    if (viewport.x === this.viewport.x && viewport.y === this.viewport.y) return;
    this.moved = true;
    this.isAway = true;
    this.glide(viewport);
  }

  /** Moves as little as needed to show an area. */
  reveal(area: Rectangle): void {
    this.go(bringInto(this.viewport, area, this.window));
  }

  centreOn({ x, y }: Point): void {
    this.go(centre({ x, y, width: 0, height: 0 }, this.window, this.viewport.scale), false);
  }

  showAll(): void {
    if (!this.live) return;
    this.moved = false;
    this.glide(fit(this.whole(), this.window));
  }

  /** Zooms around a point of the window; around its middle if none is given. */
  zoomBy(factor: number, at?: Point): void {
    const { x, y } = at ?? { x: this.window.width / 2, y: this.window.height / 2 };
    this.go(this.withBox(zoomAt(this.viewport, x, y, factor)), at === undefined);
  }

  /** Shows what another window shows, at the same place and size, as far as it is here too. */
  lookLike(other: Camera, gliding: boolean): void {
    const { live } = this;
    if (!live || !other.live || this.window.width === 0) return;
    const seen = middle(other.visible);
    const shared = [...other.live.areas].flatMap(([id, there]): [Rectangle, Rectangle][] => {
      const here = live.box(id)?.kind === "cluster" ? undefined : live.areas.get(id);
      return here ? [[there, here]] : [];
    });
    const shift = shiftNear(seen, shared);
    if (!shift) return;
    this.moved = other.moved;
    if (this.isAway) this.backUntil = performance.now() + GLIDE_MS;
    this.isAway = false;
    this.layer.classList.toggle("fxi-gliding", gliding || performance.now() < this.backUntil);
    const place = { x: seen.x + shift.x, y: seen.y + shift.y, width: 0, height: 0 };
    this.set(centre(place, this.window, other.viewport.scale));
  }

  /** Goes where somebody wants to. */
  go(viewport: Viewport, gliding = true): void {
    this.moved = true;
    this.layer.classList.toggle("fxi-gliding", gliding);
    this.set(this.live ? keepInSight(viewport, this.whole(), this.window) : viewport);
    this.events.moved(gliding);
  }

  /** Keeps a box in sight if there was one: between boxes that are far apart there is nothing to see. */
  private withBox(viewport: Viewport): Viewport {
    const { live } = this;
    if (!live) return viewport;
    const boxes = [...live.areas].filter(([id]) => live.box(id)?.kind !== "cluster").map(([, area]) => area);
    const shows = (part: Rectangle): boolean => boxes.some((area) => overlap(area, part));
    const next = visiblePart(viewport, this.window);
    if (shows(next) || !shows(this.visible)) return viewport;
    const { x, y } = middle(next);
    const away = (area: Rectangle): number => Math.hypot(middle(area).x - x, middle(area).y - y);
    const nearest = boxes.reduce((best, area) => (away(area) < away(best) ? area : best));
    return keepInSight(viewport, nearest, this.window);
  }

  private placeNow(): Rectangle {
    const room = this.element.closest(".fxlab-inspector")?.getBoundingClientRect();
    const { left, top } = this.element.getBoundingClientRect();
    return room
      ? { x: left - room.left, y: top - room.top, width: room.width, height: room.height }
      : { x: 0, y: 0, width: 0, height: 0 };
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

  private firstLook(): void {
    this.set(firstLook(this.whole(), this.window));
  }

  private keepPlace(before: LivePicture, after: LivePicture, selected: string[]): void {
    const candidates = [this.pendingAnchor, ...selected, ...byDistance(before, middle(this.visible))];
    const anchor = candidates.find((id) => id && before.areas.has(id) && after.areas.has(id));
    if (!anchor) return this.firstLook();
    const [was, is] = [before.areas.get(anchor)!, after.areas.get(anchor)!];
    this.set(follow(this.viewport, was, is));
    if (anchor === this.pendingAnchor) this.glide(bringInto(this.viewport, is, this.window));
  }

  private whole(): Rectangle {
    return { x: 0, y: 0, width: this.live?.picture.width ?? 1, height: this.live?.picture.height ?? 1 };
  }

  private areasOf(boxes: string[]): Rectangle[] {
    return boxes.flatMap((id) => this.live?.areas.get(id) ?? []);
  }
}

function byDistance(live: LivePicture, point: Point): string[] {
  const away = (area: Rectangle): number => Math.hypot(middle(area).x - point.x, middle(area).y - point.y);
  return [...live.areas].sort(([, a], [, b]) => away(a) - away(b)).map(([id]) => id);
}
