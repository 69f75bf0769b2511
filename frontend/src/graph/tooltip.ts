/** What a pointer rests on, in words beside it. */

import { type Child, fill, h } from "../base/dom";
import type { Box } from "../base/protocol";
import type { Highlights } from "./highlights";
import type { LivePicture } from "./live_picture";

export class Tooltip {
  readonly element = h("div.fxi-tooltip", { role: "tooltip", hidden: true });

  /** Stays within `host`. */
  constructor(
    private readonly host: HTMLElement,
    private readonly highlights: Highlights,
  ) {}

  showBox(id: string, box: Box, event: PointerEvent): void {
    const { painted, changed, found } = this.highlights.wordsOf(id);
    const hint = hintFor(box);
    this.show(
      event,
      h("strong", box.label),
      box.details.map((line) => h("div", line)),
      painted && h("div", painted),
      changed && h("div", h("b", changed)),
      found && box.openable && h("div", found),
      hint && h("div.fxi-muted", hint),
    );
  }

  showEdge(id: string, live: LivePicture, event: PointerEvent): void {
    const edge = live.picture.edges[id];
    if (!edge) return this.hide();
    const name = (box: string): string => live.box(box)?.label ?? "";
    this.show(
      event,
      h("strong", `${name(edge.source)} → ${name(edge.target)}`),
      edge.label && h("div", edge.label),
    );
  }

  hide(): void {
    this.element.hidden = true;
  }

  private show(event: PointerEvent, ...content: Child[]): void {
    fill(this.element, content);
    this.element.hidden = false;
    const bounds = this.host.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.element;
    const x = Math.min(event.clientX - bounds.left + 14, this.host.clientWidth - offsetWidth - 8);
    const [below, above] = [event.clientY - bounds.top + 18, event.clientY - bounds.top - offsetHeight - 10];
    const y = below + offsetHeight > this.host.clientHeight - 8 ? above : below;
    this.element.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
  }
}

function hintFor(box: Box): string {
  if (box.kind === "chip") return "Elsewhere: click to go there";
  if (box.kind === "cluster") return "Click − to close";
  return box.openable ? "Double-click or + to open" : "";
}
