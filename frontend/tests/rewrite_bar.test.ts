import { beforeEach, describe, expect, it, vi } from "vitest";
import { Bench } from "../src/app/bench";
import type { Model } from "../src/base/model";
import type { ToViewer } from "../src/base/protocol";
import type { ShownRewrite } from "../src/base/wire";
import { FakeKernel, Page } from "./fake_kernel";
import { vectorsOf } from "./golden";
import { pass } from "./passes";

const REWRITE: ShownRewrite = {
  ...{ number: 1, total: 3, stage: 2, node: "a", isExcluded: false, modules: [] },
  ...{ before: ["a = torch.relu(x) # <b>"], after: ["b = x"], roles: { a: "picked", b: "picked" } },
};
const STAGES = { names: ["", "one", "two"], shown: 2, compared: "", beside: false, between: [] };

describe("the rewrites of a pass one by one", () => {
  const sent: ToViewer[] = [];
  const limit = vi.fn();
  let bench: Bench;
  const asked = (): (ToViewer & { type: "ask" })[] => sent.filter((message) => message.type === "ask");
  const answer = (rest: Partial<ShownRewrite> = {}): void =>
    bench.answered(asked().at(-1)!.request, { ...REWRITE, ...rest });
  const press = (words: string): void =>
    [...bench.element.querySelectorAll("button")].find((e) => e.textContent === words)!.click();
  const slide = (to: number): void => {
    const slider = bench.element.querySelector("input")!;
    slider.value = String(to);
    slider.dispatchEvent(new Event("input"));
  };

  beforeEach(() => {
    sent.length = 0;
    limit.mockClear();
    let number = 0;
    const model = { get: () => STAGES } as unknown as Model;
    bench = new Bench(model, {
      send: (message) => sent.push(message),
      request: () => `r${(number += 1)}`,
      limit,
    });
    bench.step(pass("s", { on: true, steps: 3, stage: 2 }));
  });

  it("shows lines before and after as text, and lights the nodes up in the comparison", () => {
    expect(asked()[0]!.message).toEqual({ type: "rewrite", signature: "s", number: 1 });
    answer();
    expect(bench.element.querySelector("[role=status]")!.textContent).toBe("Rewrite of Pass s: 1 of 3");
    expect([...bench.element.querySelectorAll("pre")].map((e) => e.textContent)).toEqual([
      "a = torch.relu(x) # <b>",
      "b = x",
    ]);
    expect(sent.at(-1)).toEqual({ type: "light", stage: 2, compared: "below", roles: REWRITE.roles });
  });

  it("asks for the last number that was chosen while one was on its way", () => {
    answer();
    slide(2);
    slide(3);
    expect(asked().map(({ message }) => message.number)).toEqual([1, 2]);
    answer({ number: 2 });
    expect(asked().at(-1)!.message.number).toBe(3);
    answer({ number: 3 });
    expect(bench.element.querySelector("[role=status]")!.textContent).toContain("3 of 3");
  });

  it("excludes one, applies up to one, and follows the pass under its new signature", () => {
    answer({ number: 2 });
    press("This one is wrong");
    expect(limit).toHaveBeenCalledWith("s", "a", false);
    press("Apply up to 2");
    expect(sent.at(-1)).toEqual({ type: "apply-up-to", signature: "s", count: 2 });
    bench.follow([pass("t", { key: "s", on: true, steps: 3, stage: 2 })]);
    expect(asked().at(-1)!.message).toEqual({ type: "rewrite", signature: "t", number: 2 });
    answer({ number: 2, isExcluded: true });
    press("Include it again");
    expect(limit).toHaveBeenLastCalledWith("t", "a", true);
  });

  it("ends with the pass, and shows the stages as before", () => {
    answer();
    bench.follow([pass("s")]);
    expect(bench.isOpen).toBe(false);
    expect(sent.slice(-2)).toEqual([
      { type: "light", stage: null, compared: "", roles: {} },
      { type: "show-stage", stage: 2, compared: "", beside: false, between: [] },
    ]);
  });
});

describe("nodes that are lit up", () => {
  it("open the groups around them at the stage that has them, and go again", async () => {
    const page = await Page.of(new FakeKernel(vectorsOf("conv"), { on: 1 }));
    await page.sends({ type: "light", stage: 0, compared: "", roles: { stem_norm: "misfit" } });
    expect(page.error).toBe("");
    expect(page.get("stages").shown).toBe(0);
    expect(page.get("lit").boxes).toEqual({ [page.boxOf("stem_norm")!]: "misfit" });
    await page.sends({ type: "light", stage: null, compared: "", roles: {} });
    expect(page.get("lit").boxes).toEqual({});
  });
});
