import { describe, expect, it, vi } from "vitest";
import { fill, h, redraw, s } from "../src/base/dom";

describe("elements", () => {
  it("have the tag and the classes of their selector", () => {
    const made = h("p.one.two", "words ", [h("b", 3), null, false]);
    expect(made.outerHTML).toBe('<p class="one two">words <b>3</b></p>');
    expect(s("g", s("rect.a", { x: 1 })).innerHTML).toBe('<rect class="a" x="1"></rect>');
  });

  it("take attributes first: listeners, switches, states that are said, and more classes", () => {
    const press = vi.fn();
    const made = h("button.a", { class: "b c", "aria-pressed": false, disabled: false, onclick: press }, "x");
    made.click();
    expect(press).toHaveBeenCalledOnce();
    expect(made.outerHTML).toBe('<button type="button" class="a b c" aria-pressed="false">x</button>');
  });

  it("have their styles where no attribute may have any", () => {
    const set = vi.spyOn(Element.prototype, "setAttribute");
    const made = h("i", { style: "--share: 0.5" });
    expect(made.style.getPropertyValue("--share")).toBe("0.5");
    expect(set).not.toHaveBeenCalledWith("style", expect.anything());
    set.mockRestore();
  });

  it("keep the focus by name when they are drawn anew", () => {
    const [list, names] = [h("div"), ["a", "b"]];
    document.body.replaceChildren(list);
    const draw = (): void =>
      redraw(list, () => names.map((name) => h("button", { "data-focus": name }, name)));
    draw();
    list.querySelectorAll("button")[1]!.focus();
    names.unshift("c");
    draw();
    expect(document.activeElement?.textContent).toBe("b");
    fill(list);
    expect(list.childElementCount).toBe(0);
  });
});
