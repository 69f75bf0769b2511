/** The frame around the panels: where each stands, how large it is, and which of them are folded. */

import { focusedIn, h, icon, type IconName, onResize } from "../base/dom";
import { PANELS_AT_FIRST } from "../base/protocol";
import { clamp } from "../base/rectangles";
import { splitter } from "../base/splitter";
import { followTheme } from "../base/theme";
import type { TablesPanel } from "../tables/tables";
import type { PanelState } from "../base/wire";

/** JupyterLab and Notebook would take the arrow keys for their own. */
const NO_SHORTCUTS = "data-lm-suppress-shortcuts";
/** Below this there is room for details or for tables beside the passes, but hardly for a graph between both. */
const ROOMY = 1400;
const WIDE = 1080;
const MEDIUM = 740;
/** A second click on a group opens it: until then its details leave it where it is. */
const SECOND_CLICK_MS = 260;

export interface Parts {
  header: HTMLElement;
  /** What stands below the header, from top to bottom. */
  banners: HTMLElement[];
  passes: HTMLElement;
  /** What stands in the middle, from top to bottom. */
  graph: HTMLElement[];
  details: HTMLElement;
  tables: TablesPanel;
  /** Takes the focus from a panel that is folded. */
  focusGraph(): void;
}

/** Whether a key is meant for what has the focus, and not for the program around. */
function isPlainKey(event: KeyboardEvent): boolean {
  return !event.altKey && !event.ctrlKey && !event.metaKey && !/^F\d+$/.test(event.key);
}

/** A panel beside the graph, of which a strip with its name is left when it is folded. */
class SidePanel {
  readonly element: HTMLElement;
  private readonly button: HTMLButtonElement;
  private readonly label: HTMLElement;

  constructor(
    readonly name: "passes" | "details",
    private readonly title: string,
    sign: IconName,
    press: () => void,
    panel: HTMLElement,
  ) {
    this.label = h("span", title);
    this.button = h("button.fxi-fold.fxi-grow", { "aria-label": `${title} panel`, onclick: press }, [
      icon(sign),
      this.label,
    ]);
    this.element = h("div", { class: `fxi-slot fxi-slot-${name}`, style: `grid-area: ${name}` }, [
      this.button,
      panel,
    ]);
  }

  get hasFocus(): boolean {
    const focused = focusedIn(this.element);
    return focused !== null && focused !== this.button;
  }

  setOpen(isOpen: boolean): void {
    this.label.hidden = isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    this.button.title = `${isOpen ? "Fold" : "Open"} the ${this.title.toLowerCase()}`;
    for (const panel of this.element.children)
      if (panel !== this.button) (panel as HTMLElement).hidden = !isOpen;
  }
}

type Foldable = "passes" | "details" | "tables";
type Side = "left" | "right" | "bottom";

/** Where the borders of panels stand in the grid. */
const AREAS: Record<Side, string> = { left: "s1", right: "s2", bottom: "s3" };

export class Frame {
  readonly element: HTMLElement;
  private readonly main: HTMLElement;
  private readonly passes: SidePanel;
  private readonly details: SidePanel;
  private readonly stopTheme: () => void;
  private readonly stopResize: () => void;
  private panels = PANELS_AT_FIRST;
  private selected: "node" | "group" | null = null;
  /** Whether something is looked at closely above the graph. */
  private isCloseUp = false;
  /** Whether graphs stand side by side. */
  private isBeside = false;
  /** As it was laid out last: to ask for it between changes costs a layout each time. */
  private width = 0;
  private later: ReturnType<typeof setTimeout> | undefined;

  /** `save` is told what somebody has chosen: the height, null to follow the window, and how the panels stand. */
  constructor(
    private readonly parts: Parts,
    private readonly save: { height(height: number | null): void; panels(panels: PanelState): void },
  ) {
    const { passes, details } = parts;
    this.passes = new SidePanel("passes", "Passes", "panelLeft", () => this.toggle("passes"), passes);
    this.details = new SidePanel("details", "Details", "panelRight", () => this.toggle("details"), details);
    this.main = this.layOut();
    this.element = h(
      "div.fxlab-inspector",
      { role: "region", "aria-label": "fxlab inspector", [NO_SHORTCUTS]: "true" },
      parts.header,
      parts.banners,
      this.main,
      this.heightHandle(),
    );
    // VS Code hears every key that gets out of its page, as a command for the notebook.
    this.element.addEventListener("keydown", (event) => isPlainKey(event) && event.stopPropagation());
    // Notebook 7 asks the focused element before it asks those around it.
    this.element.addEventListener("focusin", (event) =>
      (event.target as Element).setAttribute(NO_SHORTCUTS, "true"),
    );
    this.stopTheme = followTheme(this.element);
    this.stopResize = onResize(this.element, () => {
      this.width = this.element.clientWidth;
      this.arrange();
    });
  }

  dispose(): void {
    clearTimeout(this.later);
    this.stopTheme();
    this.stopResize();
  }

  showPanels(panels: Partial<PanelState>): void {
    this.panels = { ...PANELS_AT_FIRST, ...panels };
    for (const name of Object.keys(AREAS) as Side[]) {
      const size = this.panels[name];
      if (size === null) this.main.style.removeProperty(`--${name}`);
      else this.setSize(name, size);
    }
    this.arrange();
  }

  /** Takes notice of what is selected, which has details. */
  setSelected(kind: "node" | "group" | null): void {
    // Who looks at a table goes on looking at it.
    if (kind && !this.isOpen("tables")) this.parts.tables.openDetails();
    this.selected = kind;
    clearTimeout(this.later);
    if (kind === "group") this.later = setTimeout(() => this.arrange(), SECOND_CLICK_MS);
    else this.arrange();
  }

  /** Leaves the room of the tables to the graph while something is looked at closely above it. */
  setCloseUp(isOn: boolean): void {
    this.isCloseUp = isOn;
    this.arrange();
  }

  setBeside(isBeside: boolean): void {
    this.isBeside = isBeside;
    this.arrange();
  }

  /** Folds or opens a panel. What would be so anyway is not kept, so that it follows what there is to show. */
  toggle(name: Foldable): void {
    clearTimeout(this.later);
    const isFolded = this.isOpen(name);
    const isUsual = isFolded === !this.wouldOpen(name);
    this.save.panels({ ...this.panels, [name]: isUsual ? "auto" : isFolded ? "folded" : "open" });
  }

  /** Chooses the layout for the width there is; narrow ones show the details as a tab. */
  arrange(): void {
    const { width } = this;
    const { details, tables } = this.parts;
    if (width > 0) {
      const layout = width >= WIDE ? "wide" : width >= MEDIUM ? "medium" : "narrow";
      if (this.element.dataset["layout"] !== layout) {
        this.element.dataset["layout"] = layout;
        if (layout === "wide") {
          tables.adopt(null);
          this.details.element.append(details);
        } else {
          details.hidden = false;
          tables.adopt(details);
        }
      }
    }
    for (const side of [this.passes, this.details]) {
      const isOpen = this.isOpen(side.name);
      const hadFocus = !isOpen && side.hasFocus;
      this.main.dataset[side.name] = isOpen ? "open" : "folded";
      side.setOpen(isOpen);
      if (hadFocus) this.parts.focusGraph();
    }
    this.main.dataset["tables"] = this.isOpen("tables") ? "open" : "folded";
    tables.setFolded(!this.isOpen("tables"));
  }

  private isOpen(name: Foldable): boolean {
    const standing = this.panels[name];
    return standing === "auto" ? this.wouldOpen(name) : standing === "open";
  }

  /** Whether a panel is open as long as nobody has said otherwise: if there is something in it, and room. */
  private wouldOpen(name: Foldable): boolean {
    const { layout } = this.element.dataset;
    if (name === "passes") return layout !== "narrow";
    if (name === "details") return this.selected !== null;
    const { tables } = this.parts;
    // Who looks at a table goes on looking at it.
    const hasRoom = this.width >= ROOMY || focusedIn(tables.element) !== null;
    if (this.isCloseUp || (this.isBeside && !hasRoom)) return false;
    if (layout !== "wide") return tables.hasContent || this.selected !== null;
    return tables.hasContent && (this.selected === null || hasRoom);
  }

  private layOut(): HTMLElement {
    const { graph, tables } = this.parts;
    const [left, right] = [this.passes.element, this.details.element];
    const bottom = h("div.fxi-slot.fxi-slot-tables", { style: "grid-area: tables" }, tables.element);
    const share = (of: number) => (): number => this.main.clientWidth * of;
    return h("div.fxi-main.fxi-grow", [
      left,
      this.border("left", "Width of the passes", left, 224, share(0.4)),
      h("div.fxi-slot.fxi-slot-graph.fxi-column", { style: "grid-area: graph" }, graph),
      this.border("right", "Width of the details", right, 220, share(0.45)),
      right,
      this.border("bottom", "Height of the tables", bottom, 90, () => this.main.clientHeight * 0.7),
      bottom,
    ]);
  }

  /** Returns the border by which a panel gets another size. */
  private border(
    name: Side,
    label: string,
    panel: HTMLElement,
    smallest: number,
    largest: () => number,
  ): HTMLElement {
    const vertical = name !== "bottom";
    return splitter({
      ...{ label, vertical, grows: name === "left", area: AREAS[name] },
      size: () => (vertical ? panel.offsetWidth : panel.offsetHeight),
      resize: (to) => this.setSize(name, Math.round(clamp(to, smallest, largest()))),
      done: () =>
        this.save.panels({
          ...this.panels,
          [name]: parseFloat(this.main.style.getPropertyValue(`--${name}`)),
        }),
    });
  }

  private setSize(name: Side, pixels: number): void {
    this.main.style.setProperty(`--${name}`, `${pixels}px`);
  }

  private heightHandle(): HTMLElement {
    let height = 0;
    const handle = splitter({
      label: "Height of the inspector",
      vertical: false,
      grows: true,
      size: () => this.element.offsetHeight,
      resize: (to) => {
        height = Math.round(clamp(to, 420, 2400));
        this.element.style.height = `${height}px`;
      },
      done: () => height && this.save.height(height),
    });
    handle.classList.add("fxi-height");
    handle.title = "Drag to resize; double-click to follow the window again";
    handle.addEventListener("dblclick", () => this.save.height(null));
    return handle;
  }
}
