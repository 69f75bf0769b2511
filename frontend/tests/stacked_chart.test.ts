import { describe, expect, it, vi } from "vitest";

import { stackedChart } from "../src/tables/stacked_chart";

const CHART = {
  names: ["a", "b", "c"],
  kinds: [
    { title: "Parameters", values: [1024, 1024, 1024] },
    { title: "Temporaries", values: [0, 2048, 0] },
  ],
  before: 4096,
};

function drawn(before: number | null = CHART.before, jump = vi.fn()) {
  const element = stackedChart({ ...CHART, before }, jump);
  const svg = element.querySelector("svg")!;
  svg.getBoundingClientRect = () => ({ left: 0, width: 300 }) as DOMRect;
  return { element, svg, jump };
}

describe("a chart of bytes", () => {
  it("stacks the kinds, with the peak of the original as a line", () => {
    const { element } = drawn();
    const [parameters, temporaries] = [...element.querySelectorAll("polygon")].map((p) =>
      p.getAttribute("points"),
    );
    expect(parameters).toBe("0 75 1 75 1 75 2 75 2 75 3 75 3 100 2 100 2 100 1 100 1 100 0 100");
    expect(temporaries).toContain("1 25 2 25");
    expect(element.querySelector(".fxi-chart-before")!.getAttribute("y1")).toBe("0");
    expect(drawn(null).element.querySelector(".fxi-chart-before")).toBeNull();
    expect(element.querySelector("ul")!.textContent).toBe("PeakParametersTemporariesPeak of the original");
    expect(element.querySelector(".fxi-chart-axis")!.textContent).toBe("4 KiB2 KiB0 B");
    expect(element.querySelector(".fxi-chart-peak")!.getAttribute("x1")).toBe("1.5");
  });

  it("names the peak, and the node under the pointer, to which a click leads", () => {
    const { element, svg, jump } = drawn();
    const words = element.querySelector("p")!;
    expect(words.textContent).toBe("Peak: b, 3 KiB: 1 KiB parameters, 2 KiB temporaries");
    svg.dispatchEvent(new MouseEvent("pointermove", { clientX: 250 }));
    expect(words.textContent).toBe("Node 3 of 3: c, 1 KiB: 1 KiB parameters");
    svg.dispatchEvent(new MouseEvent("click", { clientX: 299 }));
    expect(jump).toHaveBeenCalledWith("c");
    svg.dispatchEvent(new MouseEvent("pointerleave"));
    expect(words.textContent).toContain("Peak: b");
  });
});
