// @ts-expect-error The types of Node are not installed.
import { readFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import { VerdictLine } from "../src/panels/bars";
import type { Outputs, Tables } from "../src/base/wire";

const outputs = (rest: Partial<Outputs>): Tables =>
  ({ outputs: { state: "ready", text: "Words", table: null, ...rest } }) as unknown as Tables;

describe("the verdict", () => {
  it.each([
    [{ agrees: true }, "fxi-good", ""],
    [{ agrees: false }, "fxi-bad", ""],
    [{ agrees: null, canJudge: true }, "fxi-muted", "Judge"],
    [{ state: "failed" }, "fxi-bad", "Compare again"],
    [{ state: "none" }, "fxi-muted", ""],
  ] as const)("of %j looks like %s", (given, look, button) => {
    const line = new VerdictLine({ judge: vi.fn(), compareAgain: vi.fn() });
    line.show(outputs(given), true, ["Merge", "Fuse"]);
    expect(line.element.classList).toContain(look);
    expect(line.element.querySelector("[role=status]")!.textContent).toBe("Merge + Fuse: Words");
    expect(line.element.querySelector("button")?.textContent ?? "").toBe(button);
    line.show(outputs(given), false, []);
    expect(line.element.hidden).toBe("state" in given && given.state === "none");
  });
});

describe("hues of passes", () => {
  const css: string = readFileSync("src/theme/colours.css", "utf-8");
  const [light, dark] = [1, 2].map(
    (side) => (name: string) =>
      new RegExp(`--fxi-${name}: light-dark\\((#\\w+), (#\\w+)\\)`).exec(css)![side]!,
  ) as [(name: string) => string, (name: string) => string];
  const channels = (colour: string): number[] =>
    [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const hue = (colour: string): number => {
    const [r, g, b] = channels(colour) as [number, number, number];
    return (Math.atan2(Math.sqrt(3) * (g - b), 2 * r - g - b) * 180) / Math.PI;
  };
  const apart = (a: string, b: string): number => Math.abs(((hue(a) - hue(b) + 540) % 360) - 180);
  const luminance = (colour: string): number => {
    const linear = channels(colour).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0]! + 0.7152 * linear[1]! + 0.0722 * linear[2]!;
  };
  const contrast = (a: string, b: string): number => {
    const [dim, bright] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
    return (bright + 0.05) / (dim + 0.05);
  };

  it.each([0, 1, 2, 3, 4])("%i is none of a verdict, and can be written on", (mark) => {
    for (const of of [light, dark]) {
      for (const verdict of ["good", "bad"])
        expect(apart(of(`mark-${mark}`), of(verdict)), verdict).toBeGreaterThan(30);
      expect(contrast(of(`mark-${mark}`), of("on-mark"))).toBeGreaterThan(4.5);
    }
  });
});
