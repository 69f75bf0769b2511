import type { AnyModel } from "@anywidget/types";
import { describe, expect, it } from "vitest";
import loader from "../src/loader";

type Widget = AnyModel<Record<string, never>>;

const widget = (version: string, send: () => void): Widget =>
  ({
    get: (name: string) => (name === "_code_version" ? version : ""),
    on() {},
    off() {},
    send,
  }) as unknown as Widget;

describe("the loader", () => {
  it("says at once that the inspector is on its way", () => {
    const el = document.createElement("div");
    void loader().render({ model: widget("slow", () => {}), el } as never);
    expect(el.querySelector("[role=status]")!.textContent).toBe("Loading the inspector …");
  });

  it("says when it does not come", async () => {
    const el = document.createElement("div");
    const fail = (): never => {
      throw new Error("no kernel");
    };
    await expect(loader().render({ model: widget("gone", fail), el } as never)).rejects.toThrow("no kernel");
    expect(el.textContent).toBe("Loading the inspector failed. Run the cell again.");
  });
});
