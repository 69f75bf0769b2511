/** The frame around the panels: where each stands, and how large it is. */

import { h } from "../base/dom";
import { splitter } from "../base/splitter";
import { watchTheme } from "../base/theme";
import { clamp } from "../graph/viewport";
import type { TablesPanel } from "../tables/tables";

/** JupyterLab and Notebook would take the arrow keys for their own. */
const NO_SHORTCUTS = "data-lm-suppress-shortcuts";
const WIDE = 1080;
const MEDIUM = 740;

export interface Parts {
  header: HTMLElement;
  /** What stands below the header, from top to bottom. */
  banners: HTMLElement[];
  passes: HTMLElement;
  /** What stands in the middle, from top to bottom. */
  graph: HTMLElement[];
  details: HTMLElement;
  tables: TablesPanel;
}

/** Whether a key is meant for what has the focus, and not for the program around. */
function isPlainKey(event: KeyboardEvent): boolean {
  return !event.altKey && !event.ctrlKey && !event.metaKey && !/^F\d+$/.test(event.key);
}

export class Frame {
  readonly element: HTMLElement;
  private readonly main: HTMLElement;
  private readonly detailsSlot: HTMLElement;
  private readonly stopTheme: () => void;
  private readonly resize: ResizeObserver | null;

  /** `saveHeight` is told what height somebody has chosen. */
  constructor(
    private readonly parts: Parts,
    private readonly saveHeight: (height: number) => void,
  ) {
    this.detailsSlot = h("div", { class: "fxi-slot fxi-slot-details" }, parts.details);
    this.main = this.layOut();
    this.element = h(
      "div",
      { class: "fxlab-inspector", role: "region", "aria-label": "fxlab inspector", [NO_SHORTCUTS]: "true" },
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
    this.stopTheme = watchTheme(this.element, ({ dark, highContrast }) => {
      this.element.dataset["theme"] = dark ? "dark" : "light";
      this.element.dataset["contrast"] = highContrast ? "more" : "normal";
    });
    this.resize = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.arrange());
    this.resize?.observe(this.element);
  }

  dispose(): void {
    this.stopTheme();
    this.resize?.disconnect();
  }

  /** Chooses the layout for the width there is; narrow ones show the details as a tab. */
  arrange(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    const layout = width >= WIDE ? "wide" : width >= MEDIUM ? "medium" : "narrow";
    if (this.element.dataset["layout"] === layout) return;
    this.element.dataset["layout"] = layout;
    const { details, tables } = this.parts;
    if (layout === "wide") {
      tables.adopt(null);
      this.detailsSlot.append(details);
    } else {
      tables.adopt(details);
    }
  }

  private layOut(): HTMLElement {
    const size = (name: string): number =>
      parseFloat(getComputedStyle(this.main).getPropertyValue(name)) || 0;
    const set = (name: string, value: number, smallest: number, largest: number): void =>
      this.main.style.setProperty(name, `${clamp(value, smallest, largest)}px`);
    const room = (): number => this.main.clientWidth;
    const { passes, graph, tables } = this.parts;
    return h(
      "div",
      { class: "fxi-main" },
      h("div", { class: "fxi-slot fxi-slot-passes" }, passes),
      splitter({
        label: "Width of the passes",
        vertical: true,
        grows: true,
        size: () => size("--left"),
        resize: (to) => set("--left", to, 200, room() * 0.4),
      }),
      h("div", { class: "fxi-slot fxi-slot-graph" }, graph),
      splitter({
        label: "Width of the details",
        vertical: true,
        grows: false,
        size: () => size("--right"),
        resize: (to) => set("--right", to, 220, room() * 0.45),
      }),
      this.detailsSlot,
      splitter({
        label: "Height of the tables",
        vertical: false,
        grows: false,
        size: () => size("--bottom"),
        resize: (to) => set("--bottom", to, 90, this.main.clientHeight * 0.7),
      }),
      h("div", { class: "fxi-slot fxi-slot-tables" }, tables.element),
    );
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
      done: () => height && this.saveHeight(height),
    });
    handle.classList.add("fxi-height");
    return handle;
  }
}
