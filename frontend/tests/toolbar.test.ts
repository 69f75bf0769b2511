import { describe, expect, it, vi } from "vitest";
import { Legend } from "../src/graph/overlays/legend";
import { paintTogether } from "../src/graph/overlays/overlay";
import { Toolbar } from "../src/graph/toolbar";
import type { Overlay, Overlays } from "../src/base/protocol";
import { column } from "./pictures";

describe("the toolbar", () => {
  it("shows a switch for one line, and whether it is on", () => {
    let on = false;
    const press = vi.fn(() => (on = !on));
    const toolbar = new Toolbar({ icon: "layers", label: "All bookkeeping", press, isOn: () => on });
    const button = toolbar.element.querySelector("button")!;
    expect(button.getAttribute("aria-label")).toBe("All bookkeeping");
    expect(button.getAttribute("aria-pressed")).toBe("false");
    button.click();
    expect(press).toHaveBeenCalledOnce();
    expect(button.getAttribute("aria-pressed")).toBe("true");
    on = false;
    toolbar.refresh();
    expect(button.getAttribute("aria-pressed")).toBe("false");
  });

  it("shows a command that is no switch, with its key", () => {
    const { element } = new Toolbar({ icon: "fit", label: "Show all", key: "f", press: vi.fn() });
    const button = element.querySelector("button")!;
    expect([button.title, button.hasAttribute("aria-pressed")]).toEqual(["Show all (f)", false]);
  });
});

describe("the legend", () => {
  const overlay = (values: Overlay["values"], numeric = true): Overlay => ({
    ...{ name: "flops", title: "FLOPs", unit: "", combine: "sum", numeric, total: 0, values },
  });
  const offered = { offered: [{ name: "flops", title: "FLOPs" }], overlay: null } as unknown as Overlays;
  const choose = (legend: Legend, name: string): void => {
    legend.choice.value = name;
    legend.choice.dispatchEvent(new Event("change"));
    legend.offer({ ...offered, overlay: name ? overlay({}) : null }, "alike");
    legend.settle();
  };

  it("opens with colours that are chosen, and goes with them", () => {
    const [asked, changed] = [vi.fn(), vi.fn()];
    const legend = new Legend(asked, vi.fn(), changed);
    legend.offer(offered, "alike");
    expect(legend.isOpen).toBe(false);
    choose(legend, "flops");
    expect([legend.isOpen, asked.mock.lastCall, changed.mock.calls.length]).toEqual([true, ["flops"], 1]);
    choose(legend, "");
    expect(legend.isOpen).toBe(false);
  });

  it("does not open for colours that did not come, and opens for those of a script", () => {
    const legend = new Legend(vi.fn(), vi.fn(), vi.fn());
    legend.offer(offered, "alike");
    legend.choice.value = "flops";
    legend.choice.dispatchEvent(new Event("change"));
    legend.settle();
    expect([legend.isOpen, legend.choice.value]).toEqual([false, ""]);
    legend.offer({ ...offered, overlay: overlay({}) }, "alike");
    expect(legend.isOpen).toBe(true);
    legend.setOpen(false);
    legend.offer({ ...offered, overlay: overlay({}) }, "alike");
    expect(legend.isOpen, "as it was closed").toBe(false);
  });

  it("asks for lines by dtype beside any colours, and explains them", () => {
    const [asked, draw] = [vi.fn(), vi.fn()];
    const legend = new Legend(asked, draw, vi.fn());
    legend.offer({ ...offered, overlay: overlay({}) }, "alike");
    legend.choice.querySelector<HTMLOptionElement>("[data-lines=dtype]")!.selected = true;
    legend.choice.dispatchEvent(new Event("change"));
    expect([draw.mock.lastCall, asked.mock.calls, legend.choice.value]).toEqual([["dtype"], [], "flops"]);
    legend.offer({ ...offered, overlay: overlay({}) }, "dtype");
    expect(legend.isOpen).toBe(true);
    expect(legend.choice.querySelector("[data-lines=dtype]")!.textContent).toContain("✓");
    const lines = { title: "Lines: dtype", kinds: ["float32", "int64"] };
    legend.show([{ ...column(["x"]), lines }], [], []);
    const words = [...legend.element.querySelectorAll("li")].map((item) => item.textContent);
    expect(words.slice(0, 3)).toEqual(["Lines: dtype", "float32", "int64"]);
  });

  it.each([
    [{ x: 0, y: 0 }, ["FLOPs: every value is zero."]],
    [{}, ["FLOPs: no box has a value."]],
    [{ x: 0, y: 2 }, ["FLOPs", "02"]],
  ])("says in words when a scale has nothing to tell: %o", (values, words) => {
    const picture = column(["x", "y"]);
    const legend = new Legend(vi.fn(), vi.fn(), vi.fn());
    legend.show([picture], [], paintTogether([[overlay(values), picture]]));
    expect([...legend.element.querySelectorAll("li")].map((item) => item.textContent)).toEqual(words);
  });
});
