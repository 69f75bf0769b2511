import { beforeEach, describe, expect, it, vi } from "vitest";
import { Several, type Opened } from "../src/app/several";
import type { WrittenContents, WrittenRow } from "../src/base/wire";

const ROW: WrittenRow = {
  name: "graph 1, inference",
  model: "Net",
  stages: 3,
  nodesBefore: 7,
  nodesAfter: 9,
  verdict: "same bits",
  agrees: true,
  reason: "",
  ended: null,
};
const HOSTILE = "<img src=x onerror='hacked = 1'>";
const CONTENTS: WrittenContents = {
  title: HOSTILE,
  notes: ["The script raised ValueError: no"],
  remarks: [HOSTILE],
  graphs: [
    {
      ...ROW,
      ended: {
        what: `Graph break: ${HOSTILE}`,
        place: "/a/b.py:3",
        code: "print()",
        means: "",
        advice: "Hint.",
      },
    },
    { ...ROW, name: HOSTILE, verdict: "not judged", agrees: null, reason: "Dropout is on." },
  ],
  made: "Made today.",
};

function go(fragment: string): void {
  const oldURL = location.href;
  location.hash = fragment;
  window.dispatchEvent(new HashChangeEvent("hashchange", { oldURL }));
}

it("says where graphs end only if they are parts of code", () => {
  const contents = { ...CONTENTS, graphs: [ROW, { ...ROW, name: "another" }] };
  const { element } = new Several(contents, vi.fn());
  expect(element.querySelectorAll("thead th")).toHaveLength(5);
  expect(element.querySelector("table")!.textContent).not.toContain("the end of the code");
});

describe("a report on several graphs", () => {
  let several: Several;
  let close: ReturnType<typeof vi.fn<() => void>>;
  let open: ReturnType<typeof vi.fn<(number: number) => Opened>>;

  beforeEach(() => {
    history.replaceState(null, "", "/");
    const closed = (close = vi.fn<() => void>());
    open = vi.fn((number: number) => {
      const element = document.createElement("p");
      element.textContent = `inspector ${number}`;
      return { element, close: () => void closed() };
    });
    several = new Several(CONTENTS, open);
    document.body.replaceChildren(several.element);
  });

  const tabs = (): HTMLAnchorElement[] => [...several.element.querySelectorAll<HTMLAnchorElement>("nav a")];
  const current = (): string => several.element.querySelector("nav [aria-current]")!.textContent!;

  it("begins with a list of them, in which texts are texts", () => {
    expect(open).not.toHaveBeenCalled();
    expect(current()).toBe("Overview");
    expect(several.element.querySelector("img")).toBeNull();
    const [first, second] = several.element.querySelectorAll("tbody tr");
    expect(first!.textContent).toContain("7 → 9");
    expect(first!.textContent).toContain("b.py:3");
    expect(first!.textContent).toContain("Hint.");
    expect(second!.textContent).toContain("not judgedDropout is on.");
    expect(second!.textContent).toContain("the end of the code");
    expect(several.element.textContent).toContain("The script raised ValueError: no");
    expect([...several.element.querySelectorAll("h2")].map((title) => title.textContent)).toEqual([
      "Remarks",
    ]);
  });

  it("opens the one of the address, and closes it when another is chosen", () => {
    go("graph=2");
    expect(open).toHaveBeenLastCalledWith(2);
    expect(several.element.querySelector("main")!.textContent).toBe("inspector 2");
    expect(current()).toBe(HOSTILE);
    go("graph=1");
    expect(close).toHaveBeenCalledOnce();
    expect(open).toHaveBeenLastCalledWith(1);
    go("");
    expect(close).toHaveBeenCalledTimes(2);
    expect(several.element.querySelector("main h1")!.textContent).toBe(HOSTILE);
  });

  it("leads back to the view that a graph was left with", () => {
    expect(tabs().map((tab) => tab.getAttribute("href"))).toEqual(["#", "#graph=1", "#graph=2"]);
    go("graph=1");
    history.replaceState(null, "", "#graph=1&stage=0");
    go("graph=2");
    expect(tabs()[1]!.getAttribute("href")).toBe("#graph=1&stage=0");
  });

  it("stays as it is while the view of one changes, and shows the list for a graph that there is not", () => {
    go("graph=1");
    go("graph=1&stage=0");
    expect(open).toHaveBeenCalledOnce();
    go("graph=7");
    expect(current()).toBe("Overview");
  });
});
