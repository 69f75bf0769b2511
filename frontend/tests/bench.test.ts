import { beforeEach, describe, expect, it, vi } from "vitest";
import { Bench } from "../src/app/bench";
import type { Model, ToViewer } from "../src/base/protocol";
import type { ShownNearMiss, ShownRewrite } from "../src/base/wire";
import { FakeKernel, Page, settled } from "./fake_kernel";
import { vectorsOf } from "./golden";
import { pass } from "./passes";

const REWRITE: ShownRewrite = {
  ...{ number: 1, total: 3, stage: 2, node: "a", isExcluded: false, modules: [] },
  ...{ before: ["a = torch.relu(x) # <b>"], after: ["b = x"], roles: { a: "picked", b: "picked" } },
};
const MISS: ShownNearMiss = {
  ...{ words: "2 of 2 calls fit; <b> is 3", stage: 0, node: "mul", roles: { relu: "fits", mul: "misfit" } },
};
const STAGES = { names: ["", "one", "two"], shown: 2, compared: "", beside: false, between: [] };

describe("the workbench", () => {
  const sent: ToViewer[] = [];
  const [limit, showCode] = [vi.fn(), vi.fn()];
  let bench: Bench;
  const waiting: ((value: unknown) => void)[] = [];
  const asked = (): ToViewer[] => sent.filter(({ type }) => type === "rewrite" || type === "near-miss");
  const told = async (value: unknown): Promise<void> => {
    waiting.pop()!(value);
    await settled();
  };
  const answer = (rest: Partial<ShownRewrite> = {}): Promise<void> => told({ ...REWRITE, ...rest });
  const press = (words: string): void =>
    [...bench.element.querySelectorAll("button")].find((e) => e.textContent === words)!.click();
  const go = (way: string): void =>
    bench.element.querySelector<HTMLElement>(`[aria-label="${way} rewrite"]`)!.click();

  beforeEach(() => {
    sent.length = waiting.length = 0;
    limit.mockClear();
    const model = { get: () => STAGES } as unknown as Model;
    bench = new Bench(model, {
      send: <T>(message: ToViewer): Promise<T | null> => {
        sent.push(message);
        if (message.type !== "rewrite" && message.type !== "near-miss") return Promise.resolve(null);
        return new Promise((resolve) => waiting.push(resolve as (value: unknown) => void));
      },
      limit,
      showCode,
      opened: () => {},
    });
    bench.step(pass("s", { on: true, steps: 3, stage: 2 }));
  });

  it("shows lines before and after as text, and lights the nodes up in the comparison", async () => {
    expect(asked()[0]!).toEqual({ type: "rewrite", signature: "s", number: 1 });
    await answer();
    expect(bench.element.querySelector("[role=status]")!.textContent).toBe("Rewrite of Pass s: 1 of 3");
    expect([...bench.element.querySelectorAll("pre")].map((e) => e.textContent)).toEqual([
      "Beforea = torch.relu(x) # <b>",
      "Afterb = x",
    ]);
    expect(sent.at(-1)).toEqual({
      type: "light",
      stage: 2,
      compared: "below",
      roles: REWRITE.roles,
    });
  });

  it("asks for the last number that was chosen while one was on its way", async () => {
    await answer();
    go("Next");
    go("Next");
    expect(asked().map((message) => "number" in message && message.number)).toEqual([1, 2]);
    await answer({ number: 2 });
    expect(asked().at(-1)!).toMatchObject({ number: 3 });
    await answer({ number: 3 });
    expect(bench.element.querySelector("[role=status]")!.textContent).toContain("3 of 3");
    go("Next");
    expect(asked().at(-1)!).toMatchObject({ number: 1 });
  });

  it("excludes one, applies up to one, and follows the pass under its new signature", async () => {
    await answer({ number: 2 });
    press("This one is wrong");
    expect(limit).toHaveBeenCalledWith("s", "a", false);
    press("Apply up to 2");
    expect(sent.at(-1)).toEqual({ type: "apply-up-to", signature: "s", count: 2 });
    bench.follow([pass("t", { key: "s", on: true, steps: 3, stage: 2 })]);
    expect(asked().at(-1)!).toEqual({ type: "rewrite", signature: "t", number: 2 });
    await answer({ number: 2, isExcluded: true });
    press("Include it again");
    expect(limit).toHaveBeenLastCalledWith("t", "a", true);
  });

  it("gives way to a near miss, of which the misfit is told in words", async () => {
    await answer();
    bench.whyNot(pass("m", { name: "Mine" }), "relu");
    expect(asked().at(-1)!).toEqual({ type: "near-miss", signature: "m", node: "relu" });
    await told(MISS);
    const [rewrites, miss] = [...bench.element.querySelectorAll("section")];
    expect([rewrites!.hidden, miss!.hidden]).toEqual([true, false]);
    expect(miss!.querySelector("[role=status]")!.textContent).toBe(`Mine: ${MISS.words}`);
    expect([...miss!.querySelectorAll("li")].map((e) => e.textContent)).toEqual(["Fits", "Does not fit"]);
    expect(sent.at(-1)).toEqual({ type: "light", stage: 0, compared: "", roles: MISS.roles });
    press("Show in code");
    expect(showCode).toHaveBeenCalledWith("mul");
  });

  it("stays as it is where a near miss cannot be told", async () => {
    await answer();
    bench.whyNot(pass("m"), "relu");
    await told(null);
    expect(bench.element.querySelector("section")!.hidden).toBe(false);
  });

  it("ends with the pass, and shows the stages as before when it is closed", async () => {
    bench.follow([pass("s", { on: true, steps: 3, stage: 2 })]);
    await answer();
    bench.follow([pass("s")]);
    expect(bench.isOpen).toBe(false);
    const gone = { type: "light", stage: null, compared: "", roles: {} };
    expect(sent.at(-1), "the session shows its last stage").toEqual(gone);
    bench.step(pass("s", { on: true, steps: 3, stage: 2 }));
    await answer();
    STAGES.compared = "below";
    bench.close();
    STAGES.compared = "";
    expect(sent.slice(-2)).toEqual([
      gone,
      { type: "show-stage", stage: 2, compared: "", beside: false, between: [] },
    ]);
  });

  it("forgets what was found in another stack", async () => {
    bench.whyNot(pass("m"), "relu");
    await told(MISS);
    bench.follow([pass("m"), pass("other")]);
    expect(bench.isOpen).toBe(true);
    bench.follow([pass("m"), pass("other", { on: true })]);
    expect(bench.isOpen).toBe(false);
  });
});

describe("nodes that are lit up", () => {
  it("open the groups around them at the stage that has them, and go again where they stay in sight", async () => {
    const page = await Page.of(new FakeKernel(vectorsOf("conv"), { on: 1 }));
    await page.sends({ type: "light", stage: 0, compared: "", roles: { stem_norm: "misfit" } });
    expect(page.error).toBe("");
    expect(page.get("stages").shown).toBe(0);
    expect(page.get("lit").boxes).toEqual({ [page.boxOf("stem_norm")!]: "misfit" });
    const told = await page.sends({ type: "light", stage: null, compared: "", roles: {} });
    expect(page.get("lit").boxes).toEqual({});
    expect(told).toContainEqual({ type: "focus", boxes: [page.boxOf("stem_norm")], gently: true, pane: 0 });
  });
});
