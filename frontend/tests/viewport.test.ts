import { describe, expect, it } from "vitest";
import { around, clamp, overlap, type Rectangle } from "../src/base/rectangles";
import {
  bringAll,
  bringInto,
  centre,
  firstLook,
  fit,
  follow,
  keepInSight,
  LARGEST_SCALE,
  READABLE_SCALE,
  shiftNear,
  SMALLEST_SCALE,
  visiblePart,
  zoomAt,
  type Viewport,
} from "../src/graph/viewport";

const window = { width: 800, height: 600 };
const viewport: Viewport = { x: 30, y: -12, scale: 0.8 };
const pictureAt = (v: Viewport, x: number, y: number): [number, number] => [
  (x - v.x) / v.scale,
  (y - v.y) / v.scale,
];
const onScreen = (v: Viewport, r: Rectangle): Rectangle => ({
  x: v.x + r.x * v.scale,
  y: v.y + r.y * v.scale,
  width: r.width * v.scale,
  height: r.height * v.scale,
});

describe("zoomAt", () => {
  it.each([0.5, 1, 1.25, 3])("keeps the point under the pointer where it is, by %d", (factor) => {
    const [x, y] = pictureAt(viewport, 211, 97);
    const zoomed = zoomAt(viewport, 211, 97, factor);
    expect(zoomed.scale).toBeCloseTo(0.8 * factor);
    expect(pictureAt(zoomed, 211, 97)[0]).toBeCloseTo(x);
    expect(pictureAt(zoomed, 211, 97)[1]).toBeCloseTo(y);
  });

  it.each([
    [1e9, LARGEST_SCALE],
    [1e-9, SMALLEST_SCALE],
  ])("stops at the limits, by %d", (factor, limit) => {
    const zoomed = zoomAt(viewport, 10, 10, factor);
    expect(zoomed.scale).toBe(limit);
    expect(pictureAt(zoomed, 10, 10)[0]).toBeCloseTo(pictureAt(viewport, 10, 10)[0]);
  });

  it("comes back to where it was", () => {
    const there = zoomAt(zoomAt(viewport, 400, 300, 2), 400, 300, 0.5);
    expect(there.x).toBeCloseTo(viewport.x);
    expect(there.y).toBeCloseTo(viewport.y);
  });
});

describe("fit", () => {
  it("shows all of a large picture, in the middle", () => {
    const content = { x: 100, y: 50, width: 4000, height: 1000 };
    const shown = onScreen(fit(content, window), content);
    expect(shown.x).toBeGreaterThanOrEqual(0);
    expect(shown.x + shown.width).toBeLessThanOrEqual(window.width);
    expect(shown.y + shown.height / 2).toBeCloseTo(window.height / 2);
  });

  it("does not blow a small picture up", () => {
    expect(fit({ x: 0, y: 0, width: 10, height: 10 }, window).scale).toBe(1);
  });

  it.each([
    { width: 0, height: 0 },
    { width: 10, height: 10 },
  ])("stays finite in a window without room", (none) => {
    const { x, y, scale } = fit({ x: 0, y: 0, width: 0, height: 0 }, none);
    expect([x, y, scale].every(Number.isFinite)).toBe(true);
    expect(scale).toBeGreaterThan(0);
  });
});

describe("firstLook", () => {
  it("shows a picture that can be read as a whole", () => {
    const content = { x: 0, y: 0, width: 900, height: 500 };
    expect(firstLook(content, window)).toEqual(fit(content, window));
  });

  it("starts at the top of a long one, in a size that can be read", () => {
    const content = { x: 0, y: 40, width: 500, height: 90_000 };
    const look = firstLook(content, window);
    expect(look.scale).toBeGreaterThanOrEqual(READABLE_SCALE);
    expect(onScreen(look, content).y).toBeGreaterThan(0);
    expect(onScreen(look, content).y).toBeLessThan(100);
  });
});

describe("firstLook at a wide picture", () => {
  it("starts at its left", () => {
    const content = { x: 30, y: 0, width: 90_000, height: 500 };
    const look = firstLook(content, window);
    expect(look.scale).toBeGreaterThanOrEqual(READABLE_SCALE);
    expect(onScreen(look, content).x).toBeGreaterThan(0);
    expect(onScreen(look, content).x).toBeLessThan(100);
  });
});

describe("bringInto", () => {
  it("does not move what can be seen", () => {
    expect(bringInto(viewport, { x: 100, y: 100, width: 50, height: 50 }, window)).toEqual(viewport);
  });

  it.each([
    { x: -900, y: 5000 },
    { x: 9000, y: -700 },
  ])("brings a box into the window from %o", ({ x, y }) => {
    const target = { x, y, width: 60, height: 30 };
    const shown = onScreen(bringInto(viewport, target, window), target);
    expect(shown.x).toBeGreaterThanOrEqual(0);
    expect(shown.y).toBeGreaterThanOrEqual(0);
    expect(shown.x + shown.width).toBeLessThanOrEqual(window.width);
    expect(shown.y + shown.height).toBeLessThanOrEqual(window.height);
  });

  it("shows the start of what is larger than the window", () => {
    const target = { x: 3000, y: 3000, width: 5000, height: 5000 };
    const shown = onScreen(bringInto(viewport, target, window), target);
    expect(shown.x).toBeLessThan(100);
    expect(shown.x).toBeGreaterThan(0);
  });
});

it("centre puts the middle of a box in the middle of the window", () => {
  const target = { x: 10, y: 20, width: 30, height: 40 };
  const shown = onScreen(centre(target, window, 2), target);
  expect([shown.x + shown.width / 2, shown.y + shown.height / 2]).toEqual([400, 300]);
});

it("follow keeps a box where it is on the screen when a new picture moves it", () => {
  const [before, after] = [
    { x: 10, y: 20, width: 40, height: 10 },
    { x: 500, y: 90, width: 80, height: 10 },
  ];
  const [was, is] = [onScreen(viewport, before), onScreen(follow(viewport, before, after, window), after)];
  expect(is.x + is.width / 2).toBeCloseTo(was.x + was.width / 2);
  expect(is.y).toBeCloseTo(was.y);
});

describe("shiftNear", () => {
  const at = (x: number, y: number): Rectangle => ({ x: x - 20, y: y - 10, width: 40, height: 20 });
  const moved: [Rectangle, Rectangle][] = [
    [at(0, 0), at(0, 0)],
    [at(0, 1000), at(30, 1400)],
  ];

  it("is that of the parts around, nearly where one is and in between on the way", () => {
    const near = shiftNear({ x: 0, y: 0 }, moved)!;
    expect(Math.hypot(near.x, near.y)).toBeLessThan(1);
    const far = shiftNear({ x: 0, y: 1000 }, moved)!;
    expect(far.x).toBeCloseTo(30, 1);
    expect(far.y).toBeCloseTo(400, 1);
    expect(shiftNear({ x: 0, y: 500 }, moved)!.y).toBeCloseTo(200);
  });

  it("does not jump from one part to the next", () => {
    const shifts = Array.from({ length: 201 }, (_, i) => shiftNear({ x: 0, y: 5 * i }, moved)!.y);
    const steps = shifts.slice(1).map((y, i) => y - shifts[i]!);
    expect(Math.min(...steps)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...steps)).toBeLessThan(400 / 20);
  });

  it("is null if nothing is in both", () => {
    expect(shiftNear({ x: 0, y: 0 }, [])).toBeNull();
  });
});

it("visiblePart is what the window shows", () => {
  const shown = onScreen(viewport, visiblePart(viewport, window));
  expect(shown.x).toBeCloseTo(0);
  expect(shown.y).toBeCloseTo(0);
  expect(shown.width).toBeCloseTo(800);
  expect(shown.height).toBeCloseTo(600);
});

it("around holds every rectangle, and is null for none", () => {
  expect(around([])).toBeNull();
  expect(
    around([
      { x: 5, y: 5, width: 5, height: 5 },
      { x: -5, y: 0, width: 2, height: 30 },
    ]),
  ).toEqual({ x: -5, y: 0, width: 15, height: 30 });
});

it("overlap does not count edges that only touch", () => {
  const box = { x: 0, y: 0, width: 10, height: 10 };
  expect(overlap(box, { x: 9, y: 9, width: 10, height: 10 })).toBe(true);
  expect(overlap(box, { x: 10, y: 0, width: 10, height: 10 })).toBe(false);
});

it("clamp prefers the lower limit when the limits cross", () => {
  expect(clamp(5, 1, 3)).toBe(3);
  expect(clamp(-5, 1, 3)).toBe(1);
  expect(clamp(150, 200, 100)).toBe(200);
});

describe("bringAll", () => {
  const at = (x: number, y: number): Rectangle => ({ x, y, width: 80, height: 40 });
  const isInside = (v: Viewport, r: Rectangle): boolean => {
    const { x, y, width, height } = onScreen(v, r);
    return x >= 0 && y >= 0 && x + width <= window.width && y + height <= window.height;
  };

  it("leaves everything where it is if all can be seen", () => {
    expect(bringAll(viewport, [at(100, 100), at(300, 200)], window, 0.4)).toEqual(viewport);
    expect(bringAll(viewport, [], window, 0.4)).toEqual(viewport);
  });

  it("moves without zooming if all fit", () => {
    const targets = [at(100, 100), at(950, 100)];
    const moved = bringAll(viewport, targets, window, 0.4);
    expect(moved.scale).toBe(viewport.scale);
    expect(targets.every((target) => isInside(moved, target))).toBe(true);
  });

  it("zooms out for those that do not fit, if they can be read then", () => {
    const targets = [at(100, 100), at(1500, 100)];
    const moved = bringAll(viewport, targets, window, 0.4);
    expect(moved.scale).toBeLessThan(viewport.scale);
    expect(targets.every((target) => isInside(moved, target))).toBe(true);
  });

  it("shows the first of those that are far apart", () => {
    const targets = [at(100, 5000), at(100, 90_000)];
    const moved = bringAll(viewport, targets, window, 0.4);
    expect(moved.scale).toBe(viewport.scale);
    expect(isInside(moved, targets[0]!)).toBe(true);
  });
});

describe("keepInSight", () => {
  const content = { x: 0, y: 0, width: 500, height: 300 };

  it("leaves alone what can be seen", () => {
    expect(keepInSight(viewport, content, window)).toEqual(viewport);
  });

  it.each([
    { x: 5000, y: 0 },
    { x: -5000, y: 9000 },
    { x: 10, y: -700 },
  ])("keeps a part of the picture in the window, at %o", ({ x, y }) => {
    const shown = onScreen(keepInSight({ x, y, scale: 0.8 }, content, window), content);
    expect(overlap(shown, { x: 0, y: 0, ...window })).toBe(true);
  });
});
