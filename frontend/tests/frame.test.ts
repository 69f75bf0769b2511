import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Frame } from "../src/app/frame";
import { CodePanel } from "../src/code/code_panel";
import { h } from "../src/base/dom";
import { PANELS_AT_FIRST } from "../src/base/protocol";
import { TablesPanel } from "../src/tables/tables";
import type { PanelState, Tables } from "../src/base/wire";

const NONE = { columns: [], rows: [], total: 0 };
const EMPTY: Tables = {
  outputs: { state: "none", text: "No pass is on.", table: null },
  nodes: { text: "", table: NONE },
};
const FULL: Tables = {
  ...EMPTY,
  nodes: {
    text: "1 node",
    table: { columns: [{ name: "n", title: "Node", kind: "text" }], rows: [["a"]], total: 1 },
  },
};

let width: number;
let resized: (() => void)[];
/** Gives the window another width, and lets the page lay itself out. */
const resize = (to: number): void => {
  width = to;
  for (const tell of resized) tell();
  vi.advanceTimersToNextFrame();
};
let frame: Frame;
let tables: TablesPanel;
let details: HTMLElement;
let graph: HTMLElement;
const save = { height: vi.fn(), panels: vi.fn((panels: PanelState) => frame.showPanels(panels)) };
const main = (): DOMStringMap => frame.element.querySelector<HTMLElement>(".fxi-main")!.dataset;
const button = (name: string): HTMLButtonElement =>
  frame.element.querySelector<HTMLButtonElement>(`button[aria-label="${name} panel"]`)!;
const tab = (name: string): HTMLElement => frame.element.querySelector<HTMLElement>(`[data-tab=${name}]`)!;

beforeEach(() => {
  vi.useFakeTimers();
  save.panels.mockClear();
  resized = [];
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(action: () => void) {
        resized.push(action);
      }
      observe = vi.fn();
      disconnect = vi.fn();
    },
  );
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockImplementation(() => width);
  details = h("section", {}, h("button", {}, "Inside"));
  graph = h("div", { tabindex: 0 });
  const actions = {
    ...{ jump: vi.fn(), showStage: vi.fn(), send: vi.fn(), cancel: vi.fn(), canCancel: () => false },
    unfold: () => save.panels({ ...PANELS_AT_FIRST, tables: "open" }),
    toggle: () => frame.toggle("tables"),
    changed: () => frame.arrange(),
  };
  tables = new TablesPanel(actions, new CodePanel({ jump: vi.fn(), look: vi.fn() }));
  frame = new Frame(
    {
      ...{ header: h("div"), banners: [h("div")], passes: h("section"), graph: [graph], details, tables },
      focusGraph: () => graph.focus(),
    },
    save,
  );
  document.body.append(frame.element);
  resize(1400);
  frame.showPanels(PANELS_AT_FIRST);
  tables.show(EMPTY);
});

afterEach(() => {
  frame.dispose();
  tables.dispose();
  document.body.replaceChildren();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe("the details", () => {
  it("take room while something is selected", () => {
    expect([main()["details"], details.hidden]).toEqual(["folded", true]);
    frame.setSelected("node");
    expect([main()["details"], details.hidden]).toEqual(["open", false]);
    expect(button("Details").getAttribute("aria-expanded")).toBe("true");
    frame.setSelected(null);
    expect([main()["details"], details.hidden]).toEqual(["folded", true]);
  });

  it("of a group leave it where it is until it can have been clicked twice", () => {
    frame.setSelected("group");
    expect(main()["details"]).toBe("folded");
    vi.runAllTimers();
    expect(main()["details"]).toBe("open");
  });

  it("give the focus to the graph when they go", () => {
    frame.setSelected("node");
    details.querySelector("button")!.focus();
    frame.setSelected(null);
    expect(document.activeElement).toBe(graph);
  });

  it("stay folded, or open, if a person wants them so", () => {
    frame.setSelected("node");
    button("Details").focus();
    button("Details").click();
    expect(save.panels).toHaveBeenLastCalledWith({ ...PANELS_AT_FIRST, details: "folded" });
    expect(main()["details"]).toBe("folded");
    expect(document.activeElement).toBe(button("Details"));
    frame.setSelected(null);
    frame.setSelected("node");
    expect(main()["details"]).toBe("folded");
    button("Details").click();
    expect(save.panels).toHaveBeenLastCalledWith(PANELS_AT_FIRST);
    frame.setSelected(null);
    button("Details").click();
    expect(save.panels).toHaveBeenLastCalledWith({ ...PANELS_AT_FIRST, details: "open" });
    frame.setSelected("node");
    frame.setSelected(null);
    expect(main()["details"]).toBe("open");
  });
});

describe("the tables", () => {
  it("are a line of tabs until there is something in them", () => {
    expect(main()["tables"]).toBe("folded");
    expect(tab("outputs").getAttribute("aria-selected")).toBe("false");
    tables.show(FULL);
    expect(main()["tables"]).toBe("open");
    expect(tab("outputs").getAttribute("aria-selected")).toBe("true");
    tables.show(EMPTY);
    expect(main()["tables"]).toBe("folded");
  });

  it("leave the room to the details where there is little, unless somebody looks at them", () => {
    resize(1280);
    tables.show(FULL);
    expect(main()["tables"]).toBe("open");
    frame.setSelected("node");
    expect([main()["details"], main()["tables"]]).toEqual(["open", "folded"]);
    frame.setSelected(null);
    expect(main()["tables"]).toBe("open");
    tab("nodes").focus();
    frame.setSelected("node");
    expect([main()["details"], main()["tables"]]).toEqual(["open", "open"]);
  });

  it("open with a click on a tab, and stay as a person wants them", () => {
    tab("nodes").click();
    expect(main()["tables"]).toBe("open");
    expect(tab("nodes").getAttribute("aria-selected")).toBe("true");
    button("Tables").click();
    expect(main()["tables"]).toBe("folded");
    tables.show(FULL);
    expect(main()["tables"]).toBe("open");
    tab("nodes").click();
    tables.show(EMPTY);
    expect(main()["tables"]).toBe("open");
    tables.show(FULL);
    button("Tables").click();
    expect(save.panels).toHaveBeenLastCalledWith({ ...PANELS_AT_FIRST, tables: "folded" });
    tables.show(EMPTY);
    tables.show(FULL);
    expect(main()["tables"]).toBe("folded");
  });

  it("show none when arrow keys go along a folded line", () => {
    tab("outputs").focus();
    tab("outputs").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
    expect(document.activeElement).toBe(tab("nodes"));
    expect(main()["tables"]).toBe("folded");
  });

  it("put tabs that find no room into a menu, but not the one that is open", () => {
    vi.spyOn(HTMLElement.prototype, "scrollWidth", "get").mockImplementation(function (this: HTMLElement) {
      return 1100 * this.querySelectorAll("[role=tab]:not([hidden])").length;
    });
    tab("nodes").click();
    resize(1100);
    const menu = frame.element.querySelector<HTMLElement>(".fxi-more-tabs")!;
    expect([tab("outputs").hidden, tab("nodes").hidden, menu.hidden]).toEqual([true, false, false]);
    const items = [...menu.querySelectorAll<HTMLElement>(".fxi-item")];
    expect(items.map((item) => item.textContent)).toEqual(["Output differences", "Code"]);
    items[0]!.click();
    vi.advanceTimersToNextFrame();
    expect([tab("outputs").hidden, tab("nodes").hidden]).toEqual([false, true]);
    expect(document.activeElement).toBe(tab("outputs"));
  });

  it("leave room for the button that copies a table", () => {
    const copy = (): boolean =>
      !frame.element.querySelector<HTMLElement>("[title^='Copy the table']")!.hidden;
    const room = vi.spyOn(HTMLElement.prototype, "clientWidth", "get");
    room.mockImplementation(() => (copy() ? 1300 : 1400));
    const all = vi.spyOn(HTMLElement.prototype, "scrollWidth", "get");
    all.mockImplementation(function (this: HTMLElement) {
      return 460 * this.querySelectorAll("[role=tab]:not([hidden])").length;
    });
    tables.show(FULL);
    const shown = (): number => frame.element.querySelectorAll("[role=tab]:not([hidden])").length;
    tab("outputs").click();
    expect([copy(), shown()]).toEqual([false, 3]);
    tab("nodes").click();
    vi.advanceTimersToNextFrame();
    expect([copy(), shown()]).toEqual([true, 2]);
  });

  it("open for the details where these have no column", () => {
    resize(900);
    expect(main()["tables"]).toBe("folded");
    frame.setSelected("node");
    expect(main()["tables"]).toBe("open");
    expect(tab("details").getAttribute("aria-selected")).toBe("true");
  });
});

describe("the passes", () => {
  it("are folded where the window is narrow, and opened there", () => {
    expect(main()["passes"]).toBe("open");
    resize(600);
    expect(main()["passes"]).toBe("folded");
    button("Passes").click();
    expect(main()["passes"]).toBe("open");
    expect(save.panels).toHaveBeenLastCalledWith({ ...PANELS_AT_FIRST, passes: "open" });
  });

  it("have the width that was kept", () => {
    frame.showPanels({ ...PANELS_AT_FIRST, left: 333 });
    const style = frame.element.querySelector<HTMLElement>(".fxi-main")!.style;
    expect(style.getPropertyValue("--left")).toBe("333px");
    frame.showPanels(PANELS_AT_FIRST);
    expect(style.getPropertyValue("--left")).toBe("");
  });
});
