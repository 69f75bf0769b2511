import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Stages } from "../src/protocol";
import { StageBar } from "../src/stage_bar";

const ALONE: Stages = { names: ["Original", "Fuse", "Merge"], shown: 2, compared: "", beside: false, before: 0, comparisons: ["below", "original"] };
const BESIDE: Stages = { ...ALONE, compared: "below", beside: true, before: 1 };

const show = vi.fn();
const link = vi.fn();
const bar = new StageBar(show, link);
document.body.append(bar.element);
const button = (label: string): HTMLButtonElement =>
  [...bar.element.querySelectorAll("button")].find((e) => (e.getAttribute("aria-label") ?? e.textContent) === label)!;
const choose = (label: string, value: string): void => {
  const select = bar.element.querySelector<HTMLSelectElement>(`select[aria-label="${label}"]`)!;
  select.value = value;
  select.dispatchEvent(new Event("change"));
};

beforeEach(() => show.mockClear());

describe("the switch between one graph and two", () => {
  it("compares with the stage below if nothing is compared yet", () => {
    bar.update(ALONE);
    expect(button("One graph").getAttribute("aria-pressed")).toBe("true");
    button("Side by side").click();
    expect(show).toHaveBeenCalledWith(2, "below", true);
  });

  it("leaves the comparison as it is", () => {
    bar.update({ ...BESIDE, compared: "original" });
    button("One graph").click();
    expect(show).toHaveBeenCalledWith(2, "original", false);
    button("Side by side").click();
    expect(show).toHaveBeenCalledOnce();
  });

  it("is not there where there is nothing to compare", () => {
    bar.update({ ...ALONE, shown: 0, comparisons: [] });
    expect(button("Side by side")).toBeUndefined();
  });

  it("keeps the focus when the bar is drawn anew", () => {
    bar.update(ALONE);
    button("Side by side").focus();
    bar.update(BESIDE);
    expect(document.activeElement).toBe(button("Side by side"));
  });
});

describe("the switch that lets both graphs move together", () => {
  it("is there for two graphs, and on", () => {
    bar.update(ALONE);
    expect(button("Move together")).toBeUndefined();
    bar.update(BESIDE);
    expect(button("Move together").getAttribute("aria-pressed")).toBe("true");
  });

  it("says what it is told, and asks for the opposite", () => {
    bar.update(BESIDE);
    button("Move together").click();
    expect(link).toHaveBeenLastCalledWith(false);
    bar.setLinked(false);
    bar.update({ ...BESIDE, compared: "original" });
    expect(button("Move together").getAttribute("aria-pressed")).toBe("false");
    button("Move together").click();
    expect(link).toHaveBeenLastCalledWith(true);
  });
});

describe("walking through the stages side by side", () => {
  it.each([
    ["Stage before", 2, [1, "original", true]],
    ["Stage before", 1, [0, "", false]],
    ["Next stage", 1, [2, "below", true]],
  ] as const)("%s from stage %i", (label, shown, expected) => {
    bar.update({ ...BESIDE, shown });
    button(label).click();
    expect(show).toHaveBeenCalledWith(...expected);
  });

  it("keeps two stages when another is chosen, and shows one when nothing is compared", () => {
    bar.update(BESIDE);
    choose("Stage of the graph", "1");
    expect(show).toHaveBeenLastCalledWith(1, "original", true);
    choose("Compare with", "");
    expect(show).toHaveBeenLastCalledWith(2, "", false);
    choose("Compare with", "original");
    expect(show).toHaveBeenLastCalledWith(2, "original", true);
  });
});
