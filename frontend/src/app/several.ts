/** A report on several graphs: tabs, a list of them, and the inspector of the one that is chosen. */

import { h } from "../base/dom";
import { followTheme } from "../base/theme";
import { contentsPage } from "../panels/contents";
import { partsOf } from "../viewer/view_link";
import type { WrittenContents } from "../base/wire";

/** The inspector of a graph, and what closes it. */
export interface Opened {
  element: HTMLElement;
  close(): void;
}

const OVERVIEW = 0;

export class Several {
  readonly element: HTMLElement;
  private readonly tabs: HTMLAnchorElement[];
  private readonly main = h("main");
  private shown: number | null = null;
  private opened: Opened | null = null;

  /** `open` makes the inspector of a graph, by its number from 1. */
  constructor(
    private readonly contents: WrittenContents,
    private readonly open: (number: number) => Opened,
  ) {
    const names = ["Overview", ...contents.graphs.map((row) => row.name)];
    this.tabs = names.map((name, number) => h("a.fxi-cut", { href: addressOf(number), title: name }, name));
    this.element = h("div.fxlab-inspector.fxi-several", [
      h("nav.fxi-graph-tabs.fxi-strip", { "aria-label": "Graphs" }, this.tabs),
      this.main,
    ]);
    followTheme(this.element);
    window.addEventListener("hashchange", (event) => this.follow(event.oldURL));
    this.follow("");
  }

  /** Shows what the address names; a graph that there is not is the overview. */
  private follow(left: string): void {
    const { graph } = partsOf(location.hash);
    const number = graph < this.tabs.length ? graph : OVERVIEW;
    if (number === this.shown) return;
    // A tab leads back to the view that it was left with.
    const was = left.indexOf("#");
    if (this.shown && was >= 0) this.tabs[this.shown]!.href = left.slice(was);
    this.shown = number;
    this.opened?.close();
    this.opened = number === OVERVIEW ? null : this.open(number);
    this.main.replaceChildren(this.opened?.element ?? contentsPage(this.contents, addressOf));
    this.tabs.forEach((tab, i) => {
      if (i === number) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    });
    this.tabs[number]!.scrollIntoView?.({ block: "nearest", inline: "nearest" });
  }
}

function addressOf(number: number): string {
  return number === OVERVIEW ? "#" : `#graph=${number}`;
}
