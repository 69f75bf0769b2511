/** The graph: a picture that can be moved, zoomed, pointed at and walked through. */

import { h, iconButton, fill } from "../base/dom";
import { counted } from "../base/format";
import { LivePicture, markColour } from "./live_picture";
import { Minimap } from "./minimap";
import { nearest, neighbour, type Direction } from "./navigation";
import { NUMBER_OF_KINDS, type Painted } from "./overlay";
import type { Box, Picture } from "../base/protocol";
import {
  around,
  bringAll,
  bringInto,
  centre,
  firstLook,
  fit,
  follow,
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

export interface GraphActions {
  select(box: Box, id: string): void;
  clear(): void;
  /** Opens a group, which has a box with an id. */
  open(path: string, id: string): void;
  close(path: string, id: string): void;
  jump(node: string): void;
  search(): void;
  /** Goes back to what was selected before. */
  back(): void;
  /** Goes to the graph beside this one, if there is one. */
  cross(): void;
  /** Links this graph and the one beside it, or lets them go. */
  link(): void;
  /** Somebody has moved or zoomed the graph. */
  moved(gliding: boolean): void;
  /** Somebody wants to see all of the graph. */
  fitted(): void;
}

export interface Emphasis {
  /** Number of the pass whose nodes stand out; null for none. */
  mark: number | null;
  /** Boxes that the pass would change, when it is off. */
  matches: Record<string, number>;
}

/** Numbers of the marks of nodes that are new or gone, where two stages are shown as one graph. */
const [ADDED, REMOVED] = [0, 1];
const STILL_MS = 140;
const GLIDE_MS = 220;
const WHEEL_GUARD_MS = 250;
const STEP = 60;
/** At least this large is shown what somebody asked for. */
const NEAR_SCALE = 0.85;
/** Smaller, several boxes are not shown at once. */
const SMALL_SCALE = 0.4;
const ARROWS: Record<string, Direction> = {
  ArrowUp: "up",
  ArrowDown: "down",
  ArrowLeft: "left",
  ArrowRight: "right",
};

export class GraphView {
  readonly element: HTMLElement;
  private readonly layer = h("div", { class: "fxi-layer" });
  private readonly tooltip = h("div", { class: "fxi-tooltip", role: "tooltip", hidden: true });
  private readonly announcer = h("div", { class: "fxi-sr", "aria-live": "polite" });
  private readonly percent = h("span", { class: "fxi-percent", "aria-live": "off" });
  private readonly minimap: Minimap;
  private live: LivePicture | null = null;
  private viewport: Viewport = { x: 0, y: 0, scale: 1 };
  private window: Size = { width: 0, height: 0 };
  private shown = false;
  private moved = false;
  private pendingAnchor: string | null = null;
  /** Whether it went somewhere of its own, to bring something into sight. */
  private isAway = false;
  /** Until when it is on its way back to what the graph beside it shows. */
  private backUntil = 0;
  /** The boxes that are selected; arrow keys start from the first. */
  private selected: string[] = [];
  private emphasis: Emphasis = { mark: null, matches: {} };
  /** Box id -> how many of the nodes in it a query finds; null if nothing is looked for. */
  private found: Record<string, number> | null = null;
  private painted: Painted | null = null;
  private still: ReturnType<typeof setTimeout> | undefined;
  private lastWheelElsewhere = 0;
  private passNames: string[] = [];
  private readonly stop = new AbortController();
  private readonly resize: ResizeObserver | null;

  constructor(private readonly actions: GraphActions) {
    this.minimap = new Minimap((x, y) =>
      this.go(centre({ x, y, width: 0, height: 0 }, this.window, this.viewport.scale), false),
    );
    this.element = h(
      "div",
      {
        class: "fxi-graph",
        tabindex: 0,
        role: "application",
      },
      this.layer,
      h(
        "div",
        { class: "fxi-zoom", role: "group", "aria-label": "Zoom" },
        iconButton("plus", "Zoom in", () => this.zoomBy(1.3), "+"),
        iconButton("minus", "Zoom out", () => this.zoomBy(1 / 1.3), "-"),
        iconButton("fit", "Show all of the graph", () => this.fit(), "f"),
        this.percent,
      ),
      this.minimap.element,
      this.tooltip,
      this.announcer,
    );
    this.listen();
    this.resize = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.measure());
    this.resize?.observe(this.element);
  }

  dispose(): void {
    this.stop.abort();
    this.resize?.disconnect();
    clearTimeout(this.still);
  }

  /** Says to a screen reader what is shown here. */
  setLabel(words: string): void {
    this.element.setAttribute("aria-label", words);
  }

  /** Names of the passes by number, for the tooltip. */
  setPassNames(names: string[]): void {
    this.passNames = names;
  }

  /** Shows a picture; what was looked at stays where it was. */
  show(picture: Picture): void {
    const before = this.live;
    this.live = new LivePicture(picture);
    this.layer.replaceChildren(this.live.svg);
    this.hideTooltip();
    this.selected = this.selected.filter((id) => this.live!.elements.has(id));
    this.restyle();
    this.minimap.show(this.live);
    this.minimap.light(this.found);
    this.measure();
    if (this.window.width === 0) return;
    if (!before || !this.shown || !this.moved) this.firstLook();
    else this.keepPlace(before, this.live);
    this.shown = true;
    this.pendingAnchor = null;
  }

  /** Says which box should not move when the next picture comes. */
  anchorAt(box: string): void {
    this.pendingAnchor = box;
    this.moved = true;
  }

  setSelected(boxes: string[]): void {
    this.selected = boxes.filter((id) => this.live?.elements.has(id));
    this.restyle();
  }

  labelOf(box: string): string | undefined {
    return this.live?.box(box)?.label;
  }

  setEmphasis(emphasis: Emphasis): void {
    this.emphasis = emphasis;
    this.restyle();
  }

  /** Lights up the boxes that hold found nodes, and dims the others. */
  setFound(found: Record<string, number> | null): void {
    this.found = found;
    this.restyle();
    this.minimap.light(found);
  }

  /** Colours the boxes by an overlay. */
  setPaint(painted: Painted | null): void {
    this.painted = painted;
    this.restyle();
  }

  /** Brings boxes into the window, nodes rather than groups; gently: only if none of them can be seen. */
  focus(boxes: string[], gently = false): void {
    const nodes = boxes.filter((id) => this.live?.box(id)?.kind === "op");
    const areas = (nodes.length ? nodes : boxes).flatMap((id) => this.live?.areas.get(id) ?? []);
    const everything = around(areas);
    if (!everything || this.window.width === 0) return;
    const visible = visiblePart(this.viewport, this.window);
    if (gently && areas.some((area) => overlap(area, visible))) return;
    const room = fit(everything, this.window, 1);
    if (areas.length > 1 && room.scale >= SMALL_SCALE) return this.go(room);
    const first = areas[0]!;
    const scale = Math.max(this.viewport.scale, NEAR_SCALE);
    if (scale === this.viewport.scale && overlap(first, visible))
      return this.go(bringInto(this.viewport, first, this.window));
    this.go(centre(first, this.window, scale));
  }

  /** Brings boxes into the window, all of them if they can be read then. */
  bring(boxes: string[]): void {
    const areas = boxes.flatMap((id) => this.live?.areas.get(id) ?? []);
    if (areas.length === 0 || this.window.width === 0) return;
    const viewport = bringAll(this.viewport, areas, this.window, SMALL_SCALE);
    if (viewport.x === this.viewport.x && viewport.y === this.viewport.y) return;
    this.moved = true;
    this.isAway = true;
    this.glide(viewport);
  }

  /** Brings what is selected into the window. */
  bringSelected(): void {
    this.bring(this.selected);
  }

  /** Shows what another graph shows, at the same place and size, as far as it is here too. */
  lookLike(other: GraphView, gliding = false): void {
    const { live } = this;
    if (!live || !other.live || this.window.width === 0) return;
    const seen = middle(visiblePart(other.viewport, other.window));
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
    this.set(
      centre(
        { x: seen.x + shift.x, y: seen.y + shift.y, width: 0, height: 0 },
        this.window,
        other.viewport.scale,
      ),
    );
  }

  /** Says something to a screen reader. */
  announce(words: string): void {
    this.announcer.textContent = words;
  }

  showAll(): void {
    if (!this.live) return;
    this.moved = false;
    this.glide(fit(this.whole(), this.window));
  }

  private fit(): void {
    this.showAll();
    this.actions.fitted();
  }

  private zoomBy(factor: number): void {
    this.go(zoomAt(this.viewport, this.window.width / 2, this.window.height / 2, factor));
  }

  private firstLook(): void {
    this.set(firstLook(this.whole(), this.window));
  }

  private whole(): Rectangle {
    return { x: 0, y: 0, width: this.live?.picture.width ?? 1, height: this.live?.picture.height ?? 1 };
  }

  private keepPlace(before: LivePicture, after: LivePicture): void {
    const seen = middle(visiblePart(this.viewport, this.window));
    const candidates = [this.pendingAnchor, ...this.selected, ...byDistance(before, seen)];
    const anchor = candidates.find((id) => id && before.areas.has(id) && after.areas.has(id));
    if (!anchor) return this.firstLook();
    const [was, is] = [before.areas.get(anchor)!, after.areas.get(anchor)!];
    this.set(follow(this.viewport, was, is));
    if (anchor === this.pendingAnchor) this.glide(bringInto(this.viewport, is, this.window));
  }

  /** Takes notice of how large its window is. */
  measure(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === this.window.width && height === this.window.height) return;
    const was = this.window;
    this.window = { width, height };
    if (!this.live || width === 0) return;
    if (!this.shown || !this.moved) {
      this.shown = true;
      this.firstLook();
    } else {
      this.set({ ...this.viewport, x: this.viewport.x + (width - was.width) / 2 });
    }
  }

  private set(viewport: Viewport): void {
    this.hideTooltip();
    this.viewport = viewport;
    const { x, y, scale } = viewport;
    this.layer.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    this.element.classList.toggle("fxi-far", scale < 0.42);
    this.element.classList.toggle("fxi-very-far", scale < 0.2);
    this.percent.textContent = `${Math.round(scale * 100)} %`;
    this.element.style.setProperty("--grid", `${24 * scale}px`);
    this.element.style.backgroundPosition = `${x}px ${y}px`;
    if (this.live) this.minimap.update(visiblePart(viewport, this.window), this.live);
    // A layer of its own moves without repainting; once it rests it is painted again, sharp.
    this.layer.classList.add("fxi-moving");
    clearTimeout(this.still);
    this.still = setTimeout(() => this.layer.classList.remove("fxi-moving", "fxi-gliding"), STILL_MS + 160);
  }

  /** Goes where somebody wants to. */
  private go(viewport: Viewport, gliding = true): void {
    this.moved = true;
    this.layer.classList.toggle("fxi-gliding", gliding);
    this.set(viewport);
    this.actions.moved(gliding);
  }

  private glide(viewport: Viewport): void {
    this.layer.classList.add("fxi-gliding");
    this.set(viewport);
  }

  private restyle(): void {
    const { live, selected } = this;
    if (!live) return;
    const { mark, matches } = this.emphasis;
    const near = new Set<string>();
    const edgesIn = new Set(selected.flatMap((id) => live.entering.get(id) ?? []));
    const edgesOut = new Set(selected.flatMap((id) => live.leaving.get(id) ?? []));
    for (const id of edgesIn) near.add(live.picture.edges[id]!.source);
    for (const id of edgesOut) near.add(live.picture.edges[id]!.target);
    const { preview } = live.picture;
    for (const [id, element] of live.edges) {
      const { source, target } = live.picture.edges[id]!;
      const ends = [source, target].map((end) => live.box(end));
      element.classList.toggle(
        "fxi-ghost",
        preview === true &&
          ends.some((end) => end?.node && end.marks.some((mark) => mark === ADDED || mark === REMOVED)),
      );
      element.classList.toggle("fxi-found", this.countIn(source) > 0 && this.countIn(target) > 0);
      element.classList.toggle("fxi-in", edgesIn.has(id));
      element.classList.toggle("fxi-out", edgesOut.has(id));
    }
    for (const [id, element] of live.elements) {
      const box = live.box(id)!;
      const lit = mark !== null && box.marks.includes(mark);
      element.classList.toggle("fxi-selected", selected.includes(id));
      element.classList.toggle("fxi-found", this.countIn(id) > 0);
      element.classList.toggle("fxi-kept", box.kind === "chip" && this.countIn(box.belongsTo) > 0);
      live.setCount(id, box.openable && box.kind !== "cluster" ? this.countIn(id) : 0);
      element.classList.toggle("fxi-near", near.has(id));
      element.classList.toggle("fxi-lit", lit);
      element.classList.toggle(
        "fxi-would",
        mark !== null && !lit && (matches[id] ?? 0) > 0 && box.kind !== "cluster",
      );
      element.classList.toggle(
        "fxi-gone",
        live.picture.compared === true &&
          box.marks.includes(REMOVED) &&
          box.kind !== "cluster" &&
          box.node !== null,
      );
      this.paintBox(element, id, box);
      const shown = lit || (mark !== null && matches[id]) ? mark : box.marks.at(-1);
      for (const part of [element, live.labels.get(id)]) {
        if (shown !== undefined && shown !== null)
          part?.style.setProperty("--mark", markColour(shown, live.picture));
        else part?.style.removeProperty("--mark");
      }
    }
    this.element.classList.toggle("fxi-previewing", preview === true);
    this.element.classList.toggle("fxi-has-found", Object.keys(this.found ?? {}).length > 0);
    this.element.classList.toggle("fxi-has-overlay", this.painted !== null);
    this.element.classList.toggle("fxi-has-selection", edgesIn.size + edgesOut.size > 0);
    this.element.classList.toggle(
      "fxi-has-lit",
      mark !== null && Object.values(live.picture.boxes).some((box) => box.marks.includes(mark)),
    );
  }

  /** Returns how many nodes of a box are found. */
  private countIn(id: string): number {
    return this.found?.[id] ?? 0;
  }

  /** Says how much of a box is found, where that is not plain to see. */
  private foundWords(box: Box, id: string): string {
    const count = this.countIn(id);
    if (count === 0) return "";
    return box.openable ? `${count.toLocaleString("en-US")} of ${counted(box.count, "node")} found` : "Found";
  }

  private paintBox(element: SVGGElement, id: string, box: Box): void {
    const paint = this.painted?.boxes.get(id);
    const has = this.painted !== null && box.kind !== "cluster" && box.kind !== "chip";
    element.classList.toggle("fxi-plain", has && !paint);
    element.classList.toggle("fxi-heat", paint?.level !== undefined);
    for (let kind = 0; kind < NUMBER_OF_KINDS; kind += 1)
      element.classList.toggle(`fxi-kind-${kind}`, paint?.kind === kind);
    if (paint?.level !== undefined) element.style.setProperty("--heat", paint.level.toFixed(3));
    else element.style.removeProperty("--heat");
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
    element.addEventListener("pointerleave", () => this.hideTooltip());
    element.addEventListener("dblclick", (event) => {
      const box = this.boxAt(event.target);
      if (box?.openable) this.switchGroup(box);
    });
    element.addEventListener("keydown", (event) => this.onKey(event));
  }

  private onWheel(event: WheelEvent): void {
    // Someone who scrolls through the notebook does not want to stop here.
    if (!event.ctrlKey && event.timeStamp - this.lastWheelElsewhere < WHEEL_GUARD_MS) {
      this.lastWheelElsewhere = event.timeStamp;
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    const bounds = element(this.element);
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 18 : event.deltaY;
    const factor = Math.exp(-Math.max(-120, Math.min(120, pixels)) * (event.ctrlKey ? 0.01 : 0.0022));
    this.go(zoomAt(this.viewport, event.clientX - bounds.left, event.clientY - bounds.top, factor), false);
  }

  private onPointerDown(down: PointerEvent): void {
    if (down.button > 1 || isControl(down.target)) return;
    this.element.focus({ preventScroll: true });
    down.preventDefault();
    this.hideTooltip();
    const start = this.viewport;
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
      this.go({ ...start, x: start.x + dx, y: start.y + dy }, false);
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
      this.setSelected([]);
      return this.actions.clear();
    }
    if ((target as Element).closest(".fxi-toggle-hit")) return this.switchGroup(box);
    if (box.kind === "chip") return box.node ? this.actions.jump(box.node) : undefined;
    this.choose(id);
  }

  private choose(id: string, bring = false): void {
    const box = this.live?.box(id);
    if (!box) return;
    this.setSelected([id]);
    const words = this.painted?.boxes.get(id)?.words;
    this.announce(
      [box.label, ...box.details, words, this.changeWords(box), this.foundWords(box, id)]
        .filter(Boolean)
        .join(", "),
    );
    const area = this.live?.areas.get(id);
    if (bring && area) this.go(bringInto(this.viewport, area, this.window));
    this.actions.select(box, id);
  }

  private switchGroup(box: Box): void {
    const id = this.idOf(box);
    this.anchorAt(id);
    if (box.kind === "cluster") this.actions.close(box.path, id);
    else this.actions.open(box.path, id);
  }

  private onKey(event: KeyboardEvent): void {
    if (event.target !== this.element || event.altKey || event.metaKey || event.ctrlKey) return;
    const direction = ARROWS[event.key];
    if (direction) this.walk(direction, event.shiftKey);
    else if (event.key === "Enter" || event.key === " ") {
      const box = this.selected[0] ? this.live?.box(this.selected[0]) : undefined;
      if (box?.openable) this.switchGroup(box);
    } else if (event.key === "f") this.fit();
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.3);
    else if (event.key === "-") this.zoomBy(1 / 1.3);
    else if (event.key === "/") this.actions.search();
    else if (event.key === "o") this.actions.cross();
    else if (event.key === "l") this.actions.link();
    else if (event.key === "Backspace") this.actions.back();
    else if (event.key === "Escape") {
      this.hideTooltip();
      this.setSelected([]);
      this.actions.clear();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private walk(direction: Direction, pan: boolean): void {
    if (!this.live) return;
    if (pan) {
      const dx = { left: STEP, right: -STEP, up: 0, down: 0 }[direction];
      const dy = { up: STEP, down: -STEP, left: 0, right: 0 }[direction];
      return this.go({ ...this.viewport, x: this.viewport.x + dx, y: this.viewport.y + dy });
    }
    const visible = visiblePart(this.viewport, this.window);
    const next = this.selected[0]
      ? neighbour(this.live, this.selected[0], direction)
      : nearest(this.live, visible.x + visible.width / 2, visible.y + visible.height / 4);
    if (next) this.choose(next, true);
  }

  private idAt(target: EventTarget | null): string | null {
    if (!(target instanceof Element)) return null;
    return target.closest<SVGGElement>("[data-box]")?.dataset["box"] ?? null;
  }

  private boxAt(target: EventTarget | null): Box | undefined {
    const id = this.idAt(target);
    return id ? this.live?.box(id) : undefined;
  }

  private onHover(event: PointerEvent): void {
    if (event.buttons || isControl(event.target)) return this.hideTooltip();
    const id = this.idAt(event.target);
    const box = id ? this.live?.box(id) : undefined;
    const edge = (event.target as Element).closest?.<SVGGElement>("[data-edge]")?.dataset["edge"];
    this.markReaders(box?.kind === "chip" ? box.refersTo + box.label : null);
    if (box && !(box.kind === "cluster" && !(event.target as Element).closest("text, .fxi-toggle-hit")))
      this.showBoxTooltip(box, event);
    else if (edge) this.showEdgeTooltip(edge, event);
    else this.hideTooltip();
  }

  /** Lights every chip that stands for the same value, and the box that makes it. */
  private markReaders(value: string | null): void {
    for (const [id, element] of this.live?.elements ?? []) {
      const box = this.live!.box(id)!;
      const same = value !== null && box.kind === "chip" && box.refersTo + box.label === value;
      element.classList.toggle("fxi-same", same);
      element.classList.toggle("fxi-made-here", value !== null && value.startsWith(id));
    }
  }

  private showBoxTooltip(box: Box, event: PointerEvent): void {
    const hint =
      box.kind === "chip"
        ? "Made elsewhere: click to go there"
        : box.kind === "cluster"
          ? "Click − to close"
          : box.openable
            ? "Double-click or + to open"
            : "";
    fill(
      this.tooltip,
      h("strong", {}, box.label),
      box.details.map((line) => h("div", {}, line)),
      this.painted?.boxes.has(this.idOf(box)) && h("div", {}, this.painted.boxes.get(this.idOf(box))!.words),
      box.marks.length > 0 && h("div", { class: "fxi-tooltip-changed" }, this.changeWords(box)),
      this.countIn(this.idOf(box)) > 0 && box.openable && h("div", {}, this.foundWords(box, this.idOf(box))),
      hint && h("div", { class: "fxi-tooltip-hint" }, hint),
    );
    this.placeTooltip(event);
  }

  private idOf(box: Box): string {
    return Object.entries(this.live?.picture.boxes ?? {}).find(([, other]) => other === box)?.[0] ?? "";
  }

  /** Returns which passes changed a box, or what became of it. */
  private changeWords(box: Box): string {
    if (box.marks.length === 0) return "";
    if (this.live?.picture.compared) {
      const changes = box.marks.map((mark) => this.live!.picture.signatures[mark]).join(", ");
      const words = this.live.picture.preview ? `would be ${changes}` : changes;
      return box.openable
        ? `${counted(box.changed, "node")} ${words}`
        : words.replace(/^./, (letter) => letter.toUpperCase());
    }
    const names = box.marks.map((mark) => this.passNames[mark] ?? `pass ${mark + 1}`).join(", ");
    return box.openable ? `${counted(box.changed, "node")} changed by ${names}` : `Changed by ${names}`;
  }

  private showEdgeTooltip(id: string, event: PointerEvent): void {
    const edge = this.live?.picture.edges[id];
    if (!edge) return this.hideTooltip();
    const name = (box: string): string => this.live?.box(box)?.label ?? "";
    fill(
      this.tooltip,
      h("strong", {}, `${name(edge.source)} → ${name(edge.target)}`),
      edge.label && h("div", {}, edge.label),
    );
    this.placeTooltip(event);
  }

  private placeTooltip(event: PointerEvent): void {
    this.tooltip.hidden = false;
    const bounds = element(this.element);
    const { offsetWidth, offsetHeight } = this.tooltip;
    const x = Math.min(event.clientX - bounds.left + 14, this.window.width - offsetWidth - 8);
    const below = event.clientY - bounds.top + 18;
    const y =
      below + offsetHeight > this.window.height - 8 ? event.clientY - bounds.top - offsetHeight - 10 : below;
    this.tooltip.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
  }

  private hideTooltip(): void {
    this.tooltip.hidden = true;
    this.markReaders(null);
  }
}

function element(of: HTMLElement): DOMRect {
  return of.getBoundingClientRect();
}

function isControl(target: EventTarget | null): boolean {
  return (
    target instanceof Element &&
    target.closest("button, .fxi-minimap, .fxi-legend, input, select, summary") !== null
  );
}

function byDistance(live: LivePicture, point: Point): string[] {
  const away = (area: Rectangle): number => Math.hypot(middle(area).x - point.x, middle(area).y - point.y);
  return [...live.areas].sort(([, a], [, b]) => away(a) - away(b)).map(([id]) => id);
}
