import { beforeEach, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/camera";
import { LivePicture } from "../src/graph/live_picture";
import { overlap } from "../src/graph/viewport";
import { column } from "./pictures";

const size = { clientWidth: 600, clientHeight: 400 };
const live = new LivePicture(column(Array.from({ length: 40 }, (_, i) => `n${i}`)));
let camera: Camera;
let element: HTMLElement;
const shows = (id: string): boolean => overlap(live.areas.get(id)!, camera.visible);
const showsAny = (): boolean => [...live.areas.keys()].some(shows);

/** Lets the window be as wide as given, `x` pixels from the left of an inspector that is 1000 wide. */
function widen(width: number, x: number, room = 1000): void {
  size.clientWidth = width;
  element.getBoundingClientRect = () => ({ left: x, top: 0 }) as DOMRect;
  element.parentElement!.getBoundingClientRect = () =>
    ({ left: 0, top: 0, width: room, height: 500 }) as DOMRect;
}

beforeEach(() => {
  size.clientWidth = 600;
  element = document.createElement("div");
  for (const name of ["clientWidth", "clientHeight"] as const)
    Object.defineProperty(element, name, { get: () => size[name], configurable: true });
  const inspector = document.createElement("div");
  inspector.className = "fxlab-inspector";
  inspector.append(element);
  widen(600, 200);
  camera = new Camera(element, document.createElement("div"), { changed: vi.fn(), moved: vi.fn() });
  camera.show(live, []);
});

describe("a graph that is zoomed or moved", () => {
  it.each([
    [1.3, 3, 200],
    [1.3, 598, 2],
    [1 / 1.3, 2, 398],
  ])("shows a box, by %d at %d, %d", (factor, x, y) => {
    for (let i = 0; i < 40; i += 1) {
      camera.zoomBy(factor, { x, y });
      expect(showsAny()).toBe(true);
    }
  });

  it.each([
    [90_000, 0],
    [-90_000, 40],
    [0, 90_000],
    [7, -90_000],
  ])("never leaves the window, by %d, %d", (x, y) => {
    camera.go({ ...camera.viewport, x, y });
    const { width, height } = live.picture;
    expect(overlap({ x: 0, y: 0, width, height }, camera.visible)).toBe(true);
  });
});

describe("a window that becomes smaller", () => {
  const onScreen = (id: string): number => camera.viewport.x + live.areas.get(id)!.x * camera.viewport.scale;

  it("moves nothing when a panel opens beside it for what is selected", () => {
    camera.measure(["n1"]);
    const before = onScreen("n1");
    widen(500, 200);
    camera.measure(["n1"]);
    expect(onScreen("n1")).toBeCloseTo(before);
    widen(400, 300);
    camera.measure(["n1"]);
    expect(onScreen("n1")).toBeCloseTo(before - 100);
  });

  it("brings what is selected back if that would be covered", () => {
    camera.go({ ...camera.viewport, x: 520 });
    camera.measure(["n1"]);
    widen(300, 200);
    camera.measure(["n1"]);
    expect(shows("n1")).toBe(true);
  });

  it("keeps its middle when the whole inspector does", () => {
    camera.go({ ...camera.viewport, x: 200 });
    camera.measure([]);
    const before = onScreen("n1");
    widen(500, 200, 900);
    camera.measure([]);
    expect(onScreen("n1")).toBeCloseTo(before - 50);
  });
});
