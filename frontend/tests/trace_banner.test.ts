import { beforeEach, describe, expect, it } from "vitest";
import { TraceBanner } from "../src/panels/trace_banner";
import { FakeKernel, Page } from "./fake_kernel";

const REMARK = {
  what: "Eq(item, 1): <b>held</b>",
  place: "/home/me/models/net.py:12",
  code: "if x.sum() > 0:",
  means: "Python decided.",
  advice: "Use torch.where.",
};

describe("the remarks on a graph", () => {
  let banner: TraceBanner;

  beforeEach(() => {
    banner = new TraceBanner();
    document.body.replaceChildren(banner.element);
  });

  it("are a line that opens to where each is, what it means and what helps", () => {
    banner.show({ about: "A <b>graph</b> break", remarks: [REMARK, { ...REMARK, place: "", code: "" }] });
    expect(banner.element.hidden).toBe(false);
    expect(banner.element.querySelector("summary")!.textContent).toBe("A <b>graph</b> break: 2 remarks");
    expect(banner.element.querySelector("details")!.open).toBe(false);
    const [first, second] = banner.element.querySelectorAll("li");
    expect(first!.querySelector(".fxi-remark-place")!.textContent).toBe("models/net.py:12");
    expect(first!.querySelector("[title]")!.getAttribute("title")).toBe(REMARK.place);
    for (const words of [REMARK.code, REMARK.what, REMARK.means, REMARK.advice])
      expect(first!.textContent).toContain(words);
    expect(second!.querySelector(".fxi-remark-place, code")).toBeNull();
  });

  it("are not shown where there are none", () => {
    banner.show({ about: "Nothing", remarks: [] });
    expect(banner.element.hidden).toBe(true);
  });

  it("go when they are dismissed", () => {
    banner.show({ about: "The graph", remarks: [REMARK] });
    banner.element.querySelector<HTMLElement>("[aria-label='Dismiss the remarks']")!.click();
    expect(banner.element.hidden).toBe(true);
  });

  it("arrive with the first graph", async () => {
    const kernel = new FakeKernel();
    kernel.data.remarks = { about: "The graph", remarks: [REMARK] };
    expect((await Page.of(kernel)).get("remarks").remarks).toEqual([REMARK]);
  });
});
