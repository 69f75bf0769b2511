import { describe, expect, it, vi } from "vitest";
import { PassErrors } from "../src/panels/passes/pass_error";
import type { PassError } from "../src/base/wire";

const ERROR: PassError = {
  text: "KeyError: <img src=x>",
  place: "own.py:4",
  file: "/home/me/own.py:4",
  code: "raise KeyError(name)",
  node: "mul_1",
  stage: 1,
  traceback: [
    { hides: 0, text: 'File "own.py", line 4, in breaks' },
    { hides: 7, text: 'File "torch/fx/graph.py", line 1' },
    { hides: 0, text: "KeyError: <img src=x>" },
  ],
};

describe("the error at a switch", () => {
  const jump = vi.fn();

  it("leads to the node at hand", () => {
    const shown = new PassErrors(jump).of("own", ERROR)!;
    [...shown.querySelectorAll("button")].find((e) => e.textContent === "mul_1")!.click();
    expect(jump).toHaveBeenCalledWith("mul_1", 1);
  });

  it("names the line of the author and keeps the frames of others folded", () => {
    const shown = new PassErrors(jump).of("own", ERROR)!;
    expect(shown.querySelector(".fxi-error-words")!.textContent).toBe(ERROR.text);
    expect(shown.querySelector(".fxi-error-line")!.textContent).toBe("own.py:4raise KeyError(name)");
    expect(shown.querySelector("img")).toBeNull();
    const whole = shown.querySelector<HTMLDetailsElement>(".fxi-traceback")!;
    expect(whole.open).toBe(false);
    const [first, hidden, last] = [...whole.children].slice(1) as HTMLElement[];
    expect([first!.tagName, last!.tagName]).toEqual(["PRE", "PRE"]);
    expect((hidden as HTMLDetailsElement).open).toBe(false);
    expect(hidden!.querySelector("summary")!.textContent).toContain("7 frames");
  });

  it("stays open while the cards are drawn anew, until the error has gone", () => {
    const errors = new PassErrors(jump);
    const whole = (): HTMLDetailsElement => errors.of("own", ERROR)!.querySelector("details")!;
    const first = whole();
    first.open = true;
    first.dispatchEvent(new Event("toggle"));
    expect(whole().open).toBe(true);
    expect(errors.of("own", null)).toBeNull();
    expect(whole().open).toBe(false);
  });

  it("has nothing to open where the session refuses in words", () => {
    const shown = new PassErrors(jump).of("own", {
      text: "No.",
      place: "",
      file: "",
      code: "",
      node: "",
      stage: 0,
      traceback: [],
    })!;
    expect(shown.querySelector("details, .fxi-error-line")).toBeNull();
  });
});
