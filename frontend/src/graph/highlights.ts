/** What stands out in the graph: what is selected, found, changed by a pass, or coloured by an overlay. */

import { capitalized, counted, grouped } from "../base/format";
import type { Box } from "../base/protocol";
import { markColour, type LivePicture } from "./live_picture";
import { NUMBER_OF_KINDS, type Painted } from "./overlays/overlay";
import type { Role } from "../base/wire";

export interface Emphasis {
  /** Number of the pass whose nodes stand out; null for none. */
  mark: number | null;
  /** Boxes that the pass would change, when it is off. */
  matches: Record<string, number>;
}

/** The parts of nodes in words, as they stand on boxes; what is rewritten is plain to see. */
export const ROLE_WORDS: Record<Role, string> = {
  picked: "",
  fits: "fits",
  passed: "seen through",
  misfit: "does not fit",
};

/** Numbers of the marks of nodes that are new or gone, where two stages are shown as one graph. */
const [ADDED, REMOVED] = [0, 1];

export class Highlights {
  /** The boxes that are selected; arrow keys start from the first. */
  selected: string[] = [];
  /** Names of the passes by number. */
  passNames: string[] = [];
  /** Box id -> how many of the nodes in it a query finds; null if nothing is looked for. */
  found: Record<string, number> | null = null;
  private roles: Record<string, Role> = {};
  private emphasis: Emphasis = { mark: null, matches: {} };
  private painted: Painted | null = null;
  private live: LivePicture | null = null;

  /** `element` is what the graph stands in. */
  constructor(private readonly element: HTMLElement) {}

  show(live: LivePicture): void {
    this.live = live;
    this.setSelected(this.selected);
  }

  setSelected(boxes: string[]): void {
    this.selected = boxes.filter((id) => this.live?.elements.has(id));
    this.restyle();
  }

  setEmphasis(emphasis: Emphasis): void {
    this.emphasis = emphasis;
    this.restyle();
  }

  setFound(found: Record<string, number> | null): void {
    this.found = found;
    this.restyle();
  }

  /** Lights boxes up, each with its part in something. */
  setRoles(roles: Record<string, Role>): void {
    this.roles = roles;
    this.restyle();
  }

  setPaint(painted: Painted | null): void {
    this.painted = painted;
    this.restyle();
  }

  /** Lights every chip that stands for the same value, and the box that makes it. */
  markReaders(value: string | null): void {
    for (const [id, element] of this.live?.elements ?? []) {
      const box = this.live!.box(id)!;
      const same = value !== null && box.kind === "chip" && box.refersTo + box.label === value;
      element.classList.toggle("fxi-same", same);
      element.classList.toggle("fxi-made-here", value !== null && value.startsWith(id));
    }
  }

  /** Returns what is said of a box: its value of the overlay, what changed it, how much of it is found. */
  wordsOf(id: string): { painted: string; changed: string; found: string } {
    const box = this.live?.box(id);
    const painted = this.painted?.boxes.get(id)?.words ?? "";
    if (!box) return { painted, changed: "", found: "" };
    return { painted, changed: this.changeWords(box), found: this.foundWords(box, id) };
  }

  private countIn(id: string): number {
    return this.found?.[id] ?? 0;
  }

  /** Says how much of a box is found, where that is not plain to see. */
  private foundWords(box: Box, id: string): string {
    const count = this.countIn(id);
    if (count === 0) return "";
    return box.openable ? `${grouped(count)} of ${counted(box.count, "node")} found` : "Found";
  }

  /** Returns which passes changed a box, or what became of it. */
  private changeWords(box: Box): string {
    if (box.marks.length === 0) return "";
    const { picture } = this.live!;
    if (picture.compared) {
      const changes = box.marks.map((mark) => picture.signatures[mark]).join(", ");
      const words = picture.preview ? `would be ${changes}` : changes;
      const differ = picture.preview ? "would differ" : box.changed === 1 ? "differs" : "differ";
      return box.openable ? `${counted(box.changed, "node")} ${differ}: ${changes}` : capitalized(words);
    }
    const names = box.marks.map((mark) => this.passNames[mark] ?? "a pass").join(", ");
    return box.openable ? `${counted(box.changed, "node")} changed by ${names}` : `Changed by ${names}`;
  }

  private restyle(): void {
    const { live, selected, emphasis, element } = this;
    if (!live) return;
    const edgesIn = new Set(selected.flatMap((id) => live.entering.get(id) ?? []));
    const edgesOut = new Set(selected.flatMap((id) => live.leaving.get(id) ?? []));
    const near = new Set([
      ...[...edgesIn].map((id) => live.picture.edges[id]!.source),
      ...[...edgesOut].map((id) => live.picture.edges[id]!.target),
    ]);
    for (const [id, edge] of live.edges) this.styleEdge(id, edge, live, edgesIn.has(id), edgesOut.has(id));
    for (const [id, box] of live.elements) this.styleBox(id, box, live, near.has(id));
    const { mark } = emphasis;
    const isLit = mark !== null && Object.values(live.picture.boxes).some((box) => box.marks.includes(mark));
    toggle(element, {
      "fxi-previewing": live.picture.preview === true,
      "fxi-has-found": Object.keys(this.found ?? {}).length > 0,
      "fxi-has-overlay": this.painted !== null,
      "fxi-has-roles": Object.keys(this.roles).length > 0,
      "fxi-has-selection": edgesIn.size + edgesOut.size > 0,
      "fxi-has-lit": isLit,
    });
  }

  private styleEdge(id: string, element: Element, live: LivePicture, enters: boolean, leaves: boolean): void {
    const { source, target } = live.picture.edges[id]!;
    const isGhost = [source, target].some((end) => {
      const box = live.box(end);
      return box?.node && !box.openable && box.marks.some((mark) => mark === ADDED || mark === REMOVED);
    });
    toggle(element, {
      "fxi-ghost": live.picture.preview === true && isGhost,
      "fxi-found": this.countIn(source) > 0 && this.countIn(target) > 0,
      "fxi-in": enters,
      "fxi-out": leaves,
    });
  }

  private styleBox(id: string, element: SVGGElement, live: LivePicture, isNear: boolean): void {
    const { mark, matches } = this.emphasis;
    const box = live.box(id)!;
    const isCluster = box.kind === "cluster";
    const isLit = mark !== null && box.marks.includes(mark);
    const isGone = live.picture.compared === true && box.marks.includes(REMOVED);
    toggle(element, {
      "fxi-selected": this.selected.includes(id),
      "fxi-found": this.countIn(id) > 0,
      "fxi-kept": box.kind === "chip" && this.countIn(box.belongsTo) > 0,
      "fxi-near": isNear,
      "fxi-lit": isLit,
      "fxi-would": mark !== null && !isLit && (matches[id] ?? 0) > 0 && !isCluster,
      "fxi-gone": isGone && !box.openable,
    });
    for (const role of Object.keys(ROLE_WORDS) as Role[])
      element.classList.toggle(`fxi-role-${role}`, this.roles[id] === role);
    live.setCount(id, box.openable && !isCluster ? this.countIn(id) : 0);
    this.paintBox(element, id, box);
    const shown = isLit || (mark !== null && matches[id]) ? mark : (box.marks.at(-1) ?? null);
    for (const part of [element, live.labels.get(id)]) {
      if (shown !== null) part?.style.setProperty("--mark", markColour(shown, live.picture));
      else part?.style.removeProperty("--mark");
    }
  }

  private paintBox(element: SVGGElement, id: string, box: Box): void {
    const paint = this.painted?.boxes.get(id);
    const role = this.roles[id];
    this.live?.setLabel(id, (role && ROLE_WORDS[role]) || (paint?.label ?? ""));
    const has = this.painted !== null && box.kind !== "cluster" && box.kind !== "chip";
    toggle(element, { "fxi-plain": has && !paint, "fxi-heat": paint?.level !== undefined });
    for (let kind = 0; kind < NUMBER_OF_KINDS; kind += 1)
      element.classList.toggle(`fxi-kind-${kind}`, paint?.kind === kind);
    if (paint?.level !== undefined) element.style.setProperty("--heat", paint.level.toFixed(3));
    else element.style.removeProperty("--heat");
  }
}

function toggle(element: Element, classes: Record<string, boolean>): void {
  for (const [name, on] of Object.entries(classes)) element.classList.toggle(name, on);
}
