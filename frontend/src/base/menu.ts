/** A button that opens a small menu below it. */

import { h, type Child } from "./dom";

/** Returns a menu, and what closes it; leaving it closes it too. */
export function menu(label: Record<string, string>, text: string, ...body: Child[]): HTMLDetailsElement {
  const element = h(
    "details",
    { class: "fxi-menu" },
    h("summary", { class: "fxi-button", ...label }, text),
    h("div", { class: "fxi-menu-body" }, body),
  );
  element.addEventListener("focusout", (event) => {
    if (!element.contains(event.relatedTarget as Node | null)) closeMenu(element);
  });
  element.addEventListener("keydown", (event) => event.key === "Escape" && closeMenu(element));
  return element;
}

export function closeMenu(element: HTMLDetailsElement): void {
  element.removeAttribute("open");
}
