/** The graph: a picture that can be moved, zoomed, pointed at and walked through. */

import { fill, focusedIn, h, onResize } from "../base/dom";
import type { Box, Picture } from "../base/protocol";
import { Camera } from "./camera";
import { Highlights } from "./highlights";
import { LivePicture } from "./live_picture";
import { middle } from "../base/rectangles";
import { nearest, neighbour, type Direction } from "./navigation";
import { Tooltip } from "./tooltip";

export interface GraphActions {
  select(box: Box, id: string): void;
  clear(): void;
  /** Opens a group, which has a box with an id. */
  open(path: string, id: string): void;
  close(path: string, id: string): void;
  jump(node: string): void;
  search(): void;
  /** Shows the keys. */
  keys(): void;
  /** Goes back to what was selected before. */
  back(): void;
  /** Goes to the next graph, if there are several. */
  cross(): void;
  /** Links this graph and those beside it, or lets them go. */
  link(): void;
  /** Somebody has moved or zoomed the graph. */
  moved(gliding: boolean): void;
  /** Somebody wants to see all of the graph. */
  fitted(): void;
  /** Its window has another size. */
  measured(): void;
  /** It shows another part, or has got the attention. */
  changed(): void;
}

const WHEEL_GUARD_MS = 250;
const STEP = 60;
const ZOOM_STEP = 1.3;
const ARROWS: Record<string, Direction> = {
  ArrowUp: "up",
  ArrowDown: "down",
  ArrowLeft: "left",
  ArrowRight: "right",
};

export class GraphView {
  readonly element: HTMLElement;
  /** The groups around the middle of what is seen: their own names may be out of sight. */
  readonly crumbs = h("nav.fxi-crumbs.fxi-place.fxi-wrap.fxi-grow.fxi-muted", {
    "aria-label": "Groups in view",
  });
  private readonly layer = h("div.fxi-layer");
  private readonly announcer = h("div.fxi-sr", { "aria-live": "polite" });
  /** Until there is a picture. */
  private readonly waiting = h("p.fxi-waiting.fxi-muted", { role: "status" }, "Loading the graph …");
  /** Shown where a wheel does nothing yet. */
  private readonly hint = h("p.fxi-hint.fxi-small.fxi-muted", { "aria-hidden": "true" }, [
    "Click the graph to move it with the wheel; with Ctrl it zooms",
  ]);
  readonly camera: Camera;
  readonly highlights: Highlights;
  private readonly tooltip: Tooltip;
  private live: LivePicture | null = null;
  private lastWheelElsewhere = 0;
  private readonly stop = new AbortController();
  private readonly stopResize: () => void;

  constructor(private readonly actions: GraphActions) {
    this.element = h("div.fxi-graph.fxi-grow", { tabindex: 0, role: "application" });
    this.camera = new Camera(this.element, this.layer, {
      changed: () => this.cameraMoved(),
      moved: (gliding) => actions.moved(gliding),
    });
    this.highlights = new Highlights(this.element);
    this.tooltip = new Tooltip(this.element, this.highlights);
    const { layer, waiting, tooltip, hint, announcer } = this;
    this.element.append(layer, waiting, tooltip.element, hint, announcer);
    this.listen();
    this.stopResize = onResize(this.element, () => this.measure());
  }

  dispose(): void {
    this.stop.abort();
    this.stopResize();
    this.camera.dispose();
  }

  private measure(): void {
    if (this.camera.measure()) this.actions.measured();
  }

  /** Says to a screen reader what is shown here. */
  setLabel(words: string): void {
    this.element.setAttribute("aria-label", words);
  }

  /** Shows a picture; what was looked at stays where it was. */
  show(picture: Picture): void {
    this.live = new LivePicture(picture);
    delete this.crumbs.dataset["groups"];
    this.waiting.remove();
    this.layer.replaceChildren(this.live.svg);
    this.hideTooltip();
    this.highlights.show(this.live);
    this.camera.show(this.live, this.highlights.selected);
  }

  labelOf(box: string): string | undefined {
    return this.live?.box(box)?.label;
  }

  /** Shows what is selected, which stays in sight. */
  setSelected(boxes: string[]): void {
    this.highlights.setSelected(boxes);
    this.camera.hold(boxes);
  }

  /** Brings what is selected into the window: all of it, or only if nothing of it is there. */
  bringSelected(all = true): void {
    const { selected } = this.highlights;
    if (all) this.camera.bring(selected);
    else this.camera.hold(selected);
  }

  /** Shows what another graph shows, at the same place and size, above all what is selected in both. */
  lookLike(other: GraphView, gliding = false): void {
    const [theirs, own] = [other.highlights.selected, this.highlights.selected];
    this.camera.lookLike(other.camera, gliding, theirs, own);
  }

  /** Says something to a screen reader. */
  announce(words: string): void {
    this.announcer.textContent = words;
  }

  private cameraMoved(): void {
    this.hideTooltip();
    this.element.dataset["scale"] = this.camera.viewport.scale.toFixed(3);
    this.showCrumbs();
    this.actions.changed();
  }

  private showCrumbs(): void {
    const { live, crumbs } = this;
    const found = live?.groupsAt(middle(this.camera.visible)) ?? [];
    if (!live || crumbs.dataset["groups"] === found.join()) return;
    crumbs.dataset["groups"] = found.join();
    crumbs.title = found.map((id) => live.box(id)!.label).join(" › ");
    fill(crumbs, [
      found.map((id) =>
        h(
          "button.fxi-link",
          { tabindex: -1, onclick: () => this.choose(id, true), title: `Go to ${live.box(id)!.label}` },
          [live.box(id)!.label],
        ),
      ),
    ]);
  }

  fit(): void {
    this.camera.showAll();
    this.actions.fitted();
  }

  zoomIn(): void {
    this.camera.zoomBy(ZOOM_STEP);
  }

  zoomOut(): void {
    this.camera.zoomBy(1 / ZOOM_STEP);
  }

  private listen(): void {
    const { element } = this;
    const { signal } = this.stop;
    document.addEventListener(
      "wheel",
      (event) => {
        if (!event.composedPath().includes(element)) this.lastWheelElsewhere = event.timeStamp;
      },
      { signal, passive: true, capture: true },
    );
    element.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this.onPointerDown(event));
    element.addEventListener("pointermove", (event) => this.onHover(event));
    element.addEventListener("pointerleave", () => {
      this.hideTooltip();
      this.hint.classList.remove("fxi-shown");
    });
    element.addEventListener("dblclick", (event) => {
      const id = this.idAt(event.target);
      if (id) this.switchGroup(id);
    });
    element.addEventListener("keydown", (event) => this.onKey(event));
    element.addEventListener("focus", () => {
      this.hint.remove();
      this.actions.changed();
    });
  }

  /** Zooms with Ctrl or a pinch, moves with two fingers once it is used, and lets the notebook scroll before. */
  private onWheel(event: WheelEvent): void {
    const zooms = event.ctrlKey || event.metaKey;
    const isUsed = focusedIn(this.element) !== null || this.fillsTheWindow;
    if (!zooms && (!isUsed || event.timeStamp - this.lastWheelElsewhere < WHEEL_GUARD_MS)) {
      this.lastWheelElsewhere = event.timeStamp;
      if (!isUsed) this.hint.classList.add("fxi-shown");
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const line = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 18 : 1;
    const [across, down] = [event.deltaX * line, event.deltaY * line];
    if (!zooms) {
      const { x, y, scale } = this.camera.viewport;
      return this.camera.go({ scale, x: x - across, y: y - down }, false);
    }
    const bounds = this.element.getBoundingClientRect();
    const factor = Math.exp(-Math.max(-120, Math.min(120, down)) * (Math.abs(down) < 50 ? 0.01 : 0.0022));
    this.camera.zoomBy(factor, { x: event.clientX - bounds.left, y: event.clientY - bounds.top });
  }

  /** Whether there is nothing around it that a wheel could scroll: in a report, and on a full screen. */
  private get fillsTheWindow(): boolean {
    const inspector = this.element.closest(".fxlab-inspector");
    return inspector !== null && inspector.getBoundingClientRect().height > window.innerHeight - 4;
  }

  private onPointerDown(down: PointerEvent): void {
    if (down.button > 1 || isControl(down.target)) return;
    this.element.focus({ preventScroll: true });
    down.preventDefault();
    this.hideTooltip();
    const start = this.camera.viewport;
    // Afterwards an event from a shadow tree names the tree's host.
    const { target } = down;
    let dragged = false;
    const gesture = new AbortController();
    const { signal } = gesture;
    const move = (event: PointerEvent): void => {
      if (event.pointerId !== down.pointerId) return;
      const [dx, dy] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!dragged && Math.hypot(dx, dy) < 4) return;
      if (!dragged) this.element.setPointerCapture?.(down.pointerId);
      dragged = true;
      this.element.classList.add("fxi-dragging");
      this.camera.go({ ...start, x: start.x + dx, y: start.y + dy }, false);
    };
    const end = (event: PointerEvent): void => {
      if (event.pointerId !== down.pointerId) return;
      gesture.abort();
      this.element.classList.remove("fxi-dragging");
      if (!dragged && event.type === "pointerup" && down.button === 0) this.onClick(target);
    };
    this.element.addEventListener("pointermove", move, { signal });
    window.addEventListener("pointerup", end, { signal });
    window.addEventListener("pointercancel", end, { signal });
  }

  private onClick(target: EventTarget | null): void {
    const id = this.idAt(target);
    const box = id ? this.live?.box(id) : undefined;
    if (!id || !box) {
      this.highlights.setSelected([]);
      return this.actions.clear();
    }
    if ((target as Element).closest(".fxi-toggle-hit")) return this.switchGroup(id);
    if (box.kind === "chip") return box.node ? this.actions.jump(box.node) : undefined;
    this.choose(id);
  }

  private choose(id: string, bring = false): void {
    const box = this.live?.box(id);
    if (!box) return;
    this.highlights.setSelected([id]);
    this.camera.hold([id], true);
    const { painted, changed, found } = this.highlights.wordsOf(id);
    this.announce([box.label, ...box.details, painted, changed, found].filter(Boolean).join(", "));
    const area = this.live?.areas.get(id);
    if (bring && area) this.camera.reveal(area);
    this.actions.select(box, id);
  }

  /** Opens or closes a group, if the box is one. */
  private switchGroup(id: string): void {
    const box = this.live?.box(id);
    if (!box?.openable) return;
    this.camera.anchorAt(id);
    if (box.kind === "cluster") this.actions.close(box.path, id);
    else this.actions.open(box.path, id);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.target !== this.element || event.altKey || event.metaKey || event.ctrlKey) return;
    const direction = ARROWS[event.key];
    if (direction) this.walk(direction, event.shiftKey);
    else if (event.key === "Enter" || event.key === " ") {
      const [first] = this.highlights.selected;
      if (first) this.switchGroup(first);
    } else if (event.key === "f") this.fit();
    else if (event.key === "+" || event.key === "=") this.zoomIn();
    else if (event.key === "-") this.zoomOut();
    else if (event.key === "/") this.actions.search();
    else if (event.key === "?") this.actions.keys();
    else if (event.key === "o") this.actions.cross();
    else if (event.key === "l") this.actions.link();
    else if (event.key === "Backspace") this.actions.back();
    else if (event.key === "Escape") {
      this.hideTooltip();
      this.highlights.setSelected([]);
      this.actions.clear();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private walk(direction: Direction, pan: boolean): void {
    if (!this.live) return;
    const { viewport, visible } = this.camera;
    if (pan) {
      const dx = { left: STEP, right: -STEP, up: 0, down: 0 }[direction];
      const dy = { up: STEP, down: -STEP, left: 0, right: 0 }[direction];
      return this.camera.go({ ...viewport, x: viewport.x + dx, y: viewport.y + dy });
    }
    const [first] = this.highlights.selected;
    const next = first
      ? neighbour(this.live, first, direction)
      : nearest(this.live, visible.x + visible.width / 2, visible.y + visible.height / 4);
    if (next) this.choose(next, true);
  }

  private idAt(target: EventTarget | null): string | null {
    if (!(target instanceof Element)) return null;
    return target.closest<SVGGElement>("[data-box]")?.dataset["box"] ?? null;
  }

  private onHover(event: PointerEvent): void {
    if (event.buttons || isControl(event.target) || !this.live) return this.hideTooltip();
    const target = event.target as Element;
    const id = this.idAt(target);
    const box = id ? this.live.box(id) : undefined;
    const edge = target.closest?.<SVGGElement>("[data-edge]")?.dataset["edge"];
    const isInside = box?.kind === "cluster" && !target.closest("text, .fxi-toggle-hit");
    this.highlights.markReaders(box?.kind === "chip" ? box.refersTo + box.label : null);
    if (id && box && !isInside) this.tooltip.showBox(id, box, event);
    else if (edge) this.tooltip.showEdge(edge, this.live, event);
    else this.hideTooltip();
  }

  private hideTooltip(): void {
    this.tooltip.hide();
    this.highlights.markReaders(null);
  }
}

/** Whether something in a graph is operated by itself. */
export function isControl(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("button, input, select, summary") !== null;
}
