import { describe, expect, it } from "vitest";
import { h } from "../src/base/dom";
import { rove } from "../src/base/roving";

function group(...names: string[]): HTMLElement {
  const made = h("div", {}, buttons(names));
  document.body.replaceChildren(made);
  return made;
}

const buttons = (names: string[]): HTMLElement[] =>
  names.map((name) => h("button", { "data-focus": name, class: name.split("-")[0]! }, name));
const stops = (element: HTMLElement): string[] =>
  [...element.querySelectorAll("button")].filter(({ tabIndex }) => tabIndex === 0).map((e) => e.textContent!);
const press = (key: string): void =>
  void document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const focused = (): string | null => document.activeElement!.textContent;

describe("several controls with one tab stop", () => {
  it("are gone through by arrows, and Tab comes back to the last", () => {
    const element = group("grip-a", "name-a", "grip-b", "name-b");
    const drawn = rove(element, "button", ".name");
    expect(stops(element)).toEqual(["name-a"]);
    element.querySelector<HTMLElement>("[tabindex='0']")!.focus();
    press("ArrowDown");
    expect(focused()).toBe("name-b");
    press("ArrowLeft");
    expect([focused(), stops(element)]).toEqual(["grip-b", ["grip-b"]]);
    press("ArrowDown");
    expect(focused(), "there is no other").toBe("grip-b");
    element.replaceChildren(...buttons(["grip-b", "grip-a"]));
    drawn();
    expect(stops(element), "drawn anew").toEqual(["grip-b"]);
  });

  it("leave out what is disabled, and other keys alone", () => {
    const element = group("a", "b", "c");
    element.querySelectorAll("button")[1]!.disabled = true;
    rove(element, "button");
    element.querySelector("button")!.focus();
    press("Enter");
    expect(focused()).toBe("a");
    press("ArrowRight");
    expect(focused()).toBe("c");
    press("ArrowRight");
    expect(focused()).toBe("c");
  });
});
