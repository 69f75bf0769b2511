import { beforeEach, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/camera";
import { LivePicture } from "../src/graph/live_picture";
import { placement } from "../src/graph/placement";
import { holds, overlap } from "../src/base/rectangles";
import { visiblePart } from "../src/graph/viewport";
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

it("brings a change into sight as a whole that the edge of the window cuts", () => {
  const place = { x: 0, y: 0, width: 600, height: 400, room: { width: 600, height: 400 } };
  const area = live.areas.get("n5")!;
  const viewport = { scale: 1, x: 0, y: 400 - area.y - area.height / 2 };
  const wish = { anchor: null, selected: [], some: ["n5"] };
  const looked = placement({ live, viewport, place, moved: true }, live, place, wish);
  expect(holds(visiblePart(viewport, place), area)).toBe(false);
  expect(holds(visiblePart(looked, place), area)).toBe(true);
  expect(looked.scale).toBe(1);
  // With what is around it, and where it is if it can be seen.
  const { y, height } = visiblePart(looked, place);
  expect(Math.min(area.y - y, y + height - area.y - area.height)).toBeGreaterThan(height / 5);
  const again = placement({ live, viewport: looked, place, moved: true }, live, place, wish);
  expect(again).toEqual(looked);
  const both = { ...wish, selected: ["n4"] };
  const seen = placement({ live, viewport, place, moved: true }, live, place, both);
  expect(holds(visiblePart(viewport, place), live.areas.get("n4")!)).toBe(true);
  expect(holds(visiblePart(seen, place), area)).toBe(true);
});

describe("a window that becomes smaller", () => {
  const onScreen = (id: string): number => camera.viewport.x + live.areas.get(id)!.x * camera.viewport.scale;

  it("moves nothing when a panel opens beside it for what is selected", () => {
    camera.hold(["n1"], true);
    const before = onScreen("n1");
    widen(500, 200);
    camera.measure();
    expect(onScreen("n1")).toBeCloseTo(before);
    widen(400, 300);
    camera.measure();
    expect(onScreen("n1")).toBeCloseTo(before - 100);
  });

  it("brings what is selected back if that would be covered", () => {
    camera.go({ ...camera.viewport, x: 520 });
    camera.hold(["n1"], true);
    widen(300, 200);
    camera.measure();
    expect(shows("n1")).toBe(true);
  });

  it("keeps its middle when the whole inspector does", () => {
    camera.go({ ...camera.viewport, x: 200 });
    camera.measure();
    const before = onScreen("n1");
    widen(500, 200, 900);
    camera.measure();
    expect(onScreen("n1")).toBeCloseTo(before - 50);
  });
});

describe("a picture that takes the place of another", () => {
  /** A group that is opened to a column far higher than the window, among others. */
  const tall = column(Array.from({ length: 90 }, (_, i) => (i === 45 ? "group" : `m${i}`)));
  const short = new LivePicture(column(["a", "group", "b"], { group: { kind: "group", openable: true } }));
  const long = new LivePicture({
    ...tall,
    svg: tall.svg.replace('x="0" y="2700" width="80" height="30"', 'x="0" y="0" width="90" height="5400"'),
    boxes: { ...tall.boxes, group: { ...tall.boxes["group"]!, kind: "cluster", openable: true } },
  });

  it("is in sight when the middle of a group was looked at, and the group is closed", () => {
    for (const part of [0.2, 0.5, 0.8]) {
      camera.show(long, []);
      camera.go({ scale: 1, x: 100, y: -5400 * part });
      camera.show(short, []);
      expect([...short.areas.values()].every((area) => overlap(area, camera.visible))).toBe(true);
    }
  });

  it("is shown as it was before, unless somebody has moved meanwhile", () => {
    camera.show(long, []);
    camera.go({ scale: 1, x: 100, y: -2000 });
    const was = camera.viewport;
    camera.show(short, []);
    camera.show(long, []);
    expect(camera.viewport).toEqual(was);
    camera.show(short, []);
    camera.zoomBy(1.1);
    camera.show(long, []);
    expect(camera.viewport).not.toEqual(was);
  });
});
