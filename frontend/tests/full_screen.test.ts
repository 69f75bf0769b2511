import { afterEach, describe, expect, it, vi } from "vitest";
import { FullScreen } from "../src/app/full_screen";

afterEach(() => document.body.replaceChildren());

describe("full screen that the browser refuses", () => {
  it("fills the window, keeps everything else from the focus, and gives it back", async () => {
    document.body.innerHTML =
      '<nav></nav><main><p></p><div id="host"><div id="it"></div></div></main><footer inert></footer>';
    const element = document.getElementById("it")!;
    element.requestFullscreen = () => Promise.reject(new Error("not allowed here"));
    const changed = vi.fn();
    const full = new FullScreen(element, changed);
    const inert = (): string[] =>
      [...document.querySelectorAll<HTMLElement>("*")].filter((e) => e.inert).map((e) => e.localName);
    document.querySelector("footer")!.inert = true;

    await full.begin();
    expect([full.isOn, full.fillsWindow, element.classList.contains("fxi-full")]).toEqual([true, true, true]);
    expect(inert().sort()).toEqual(["footer", "nav", "p"]);
    await full.end();
    expect([full.isOn, element.classList.contains("fxi-full")]).toEqual([false, false]);
    expect(inert()).toEqual(["footer"]);
    expect(changed).toHaveBeenCalledTimes(2);
  });
});
