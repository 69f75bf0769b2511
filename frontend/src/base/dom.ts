/** Elements of the page. Texts become text nodes, never markup. */

export type Child = Node | string | number | null | undefined | false | Child[];
type Attribute = string | number | boolean | null | undefined | ((event: never) => void);
export type Attributes = Record<string, Attribute>;
type Tag<S, Tags> = S extends `${infer T}.${string}` ? T & Tags : S & Tags;
type HtmlTag<S> = Tag<S, keyof HTMLElementTagNameMap>;
type SvgTag<S> = Tag<S, keyof SVGElementTagNameMap>;
type Content = [(Attributes | Child)?, ...Child[]];

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an HTML element of a tag and classes, such as `p.fxi-muted`. Attributes come first: those that start with
 * "on" are listeners, booleans are set or left out, and classes are added.
 */
export function h<S extends string>(selector: S, ...content: Content): HTMLElementTagNameMap[HtmlTag<S>] {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag as HtmlTag<S>);
  if (element instanceof HTMLButtonElement) element.type = "button";
  return filled(element, classes, content);
}

/** Creates an SVG element in the same way. */
export function s<S extends string>(selector: S, ...content: Content): SVGElementTagNameMap[SvgTag<S>] {
  const [tag, ...classes] = selector.split(".");
  return filled(document.createElementNS(SVG, tag as SvgTag<S>), classes, content);
}

function filled<E extends HTMLElement | SVGElement>(
  element: E,
  classes: string[],
  [first, ...rest]: Content,
): E {
  const isChild =
    typeof first !== "object" || first === null || first instanceof Node || Array.isArray(first);
  if (classes.length > 0) element.classList.add(...classes);
  for (const [name, value] of Object.entries(isChild ? {} : first)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (name === "class") element.classList.add(...String(value).split(" ").filter(Boolean));
    // A content security policy allows styles of scripts, and none of attributes.
    else if (name === "style") element.style.cssText = String(value ?? "");
    else if (name.startsWith("aria-") && typeof value === "boolean")
      element.setAttribute(name, String(value));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, String(value));
  }
  append(element, isChild ? [first, ...rest] : rest);
  return element;
}

/** Replaces everything in an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== null && child !== undefined && child !== false) element.append(String(child));
  }
}

/** Returns a dotted or underscored name that breaks where people would break it. */
export function breakable(name: string): Child[] {
  return name
    .split(/(?<=[._/\\])/)
    .flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part]));
}

const ICONS = {
  undo: "M4 7h7a4 4 0 0 1 0 8H7M4 7l3-3M4 7l3 3",
  redo: "M14 7H7a4 4 0 0 0 0 8h4M14 7l-3-3M14 7l-3 3",
  reset: "M14.5 9a5.5 5.5 0 1 1-1.8-4.1M14.5 2.5v3h-3",
  plus: "M9 4v10M4 9h10",
  minus: "M4 9h10",
  fit: "M3.5 7V3.5H7M11 3.5h3.5V7M14.5 11v3.5H11M7 14.5H3.5V11",
  layers: "M9 3 2.5 6.5 9 10l6.5-3.5ZM3.5 9.5 9 12.5l5.5-3M3.5 12.3 9 15.3l5.5-3",
  search: "M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM11.5 11.5 15 15",
  close: "M5 5l8 8M13 5l-8 8",
  chevron: "M7 5l4 4-4 4",
  back: "M11 5 7 9l4 4",
  up: "M5 11l4-4 4 4",
  down: "M5 7l4 4 4-4",
  copy: "M6.5 6.5h8v8h-8zM4 11.5H3.5v-8h8V4",
  alert: "M9 3 2.5 14.5h13ZM9 7.5v3.2M9 12.4v.2",
  check: "M4 9.5 7.5 13 14 5.5",
  link: "M7.3 10.7l3.4-3.4M8 5.6l1.5-1.5a3 3 0 0 1 4.3 4.3L12.3 10M10 12.4l-1.5 1.5a3 3 0 0 1-4.3-4.3L5.7 8",
  legend: "M3.5 4h3.5v3.5H3.5zM3.5 10.5h3.5V14H3.5zM10 5.75h5M10 12.25h5",
  expand: "M10.5 3.5h4v4M14 4l-4 4M7.5 14.5h-4v-4M4 14l4-4",
  panelLeft: "M3 4h12v10H3zM7 4v10",
  panelRight: "M3 4h12v10H3zM11 4v10",
  panelBottom: "M3 4h12v10H3zM3 10h12",
  nodes:
    "M5 3.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM13 7.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM5 11.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM6.4 5.6l5.2 2.8M6.4 12.4l5.2-2.8",
  across: "M3 9h11M10.5 5.5 14 9l-3.5 3.5",
  shapes: "M3 13.5 13.5 3l1.5 1.5L4.5 15ZM6.5 10l1.5 1.5M9.5 7l1.5 1.5",
  unfold: "M5.5 7 9 3.5 12.5 7M5.5 11 9 14.5 12.5 11",
  fold: "M5.5 3.5 9 7l3.5-3.5M5.5 14.5 9 11l3.5 3.5",
  target: "M9 5.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM9 2.5v3M9 12.5v3M2.5 9h3M12.5 9h3",
} as const;

export type IconName = keyof typeof ICONS;

/** Returns a line icon that takes the colour of the text around it. */
export function icon(name: IconName): SVGSVGElement {
  return s(
    "svg.fxi-icon",
    { viewBox: "0 0 18 18", width: 16, height: 16, "aria-hidden": "true", focusable: "false" },
    s("path", { d: ICONS[name] }),
  );
}

/** Returns a button that shows only an icon, and says in words what it does. */
export function iconButton(
  name: IconName,
  label: string,
  onclick: () => void,
  keys = "",
  more: Attributes = {},
): HTMLButtonElement {
  const title = keys ? `${label} (${keys})` : label;
  const attributes = { "aria-label": label, title, onclick, ...more };
  return h("button.fxi-button.fxi-icon-button", attributes, icon(name));
}

/** Returns a button of a few words; its title says more. */
export function textButton(
  words: Child,
  title: string,
  onclick: () => unknown,
  more: Attributes = {},
): HTMLButtonElement {
  return h("button.fxi-button", { title: title || null, onclick, ...more }, words);
}

/** Returns a choice among options; `choose` is called with the value of one. */
export function choice(
  choose: (value: string) => void,
  options: Child[],
  more: Attributes = {},
): HTMLSelectElement {
  const select = h("select", { onchange: () => choose(select.value), ...more }, options);
  return select;
}

export function nodeLink(name: string, go: () => void, shown: Child = name): HTMLButtonElement {
  return h("button.fxi-link", { title: `Go to ${name}`, "aria-label": name, onclick: go }, shown);
}

/** Copies a text; returns whether the browser allowed it. */
export async function copied(text: string): Promise<boolean> {
  const done = navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  return (await done) ?? false;
}

/** Returns a button that copies a text, and says whether it was. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const copy = iconButton("copy", label, async () => {
    const { title } = copy;
    const done = await copied(text());
    copy.classList.toggle("fxi-good", done);
    copy.title = done ? "Copied" : "Copying failed: the browser denied it";
    fill(copy, icon(done ? "check" : "alert"));
    setTimeout(() => {
      copy.classList.remove("fxi-good");
      copy.title = title;
      fill(copy, icon("copy"));
    }, 1500);
  });
  return copy;
}

/** Calls back when an element has another size, until it is told to stop. */
export function onResize(element: Element, action: () => void): () => void {
  if (typeof ResizeObserver === "undefined") return () => {};
  const observer = new ResizeObserver(action);
  observer.observe(element);
  return () => observer.disconnect();
}

/** Returns the attributes of a list that folds, and stays as it is when it is drawn anew. */
export function foldable(opened: Set<string>, key: string): Record<string, Attribute> {
  const ontoggle = ({ target, currentTarget }: Event): void => {
    if (target !== currentTarget) return;
    if ((target as HTMLDetailsElement).open) opened.add(key);
    else opened.delete(key);
  };
  return { open: opened.has(key), ontoggle };
}

/** Returns a version of a function that runs once the calls pause. */
export function debounce(action: () => void, milliseconds: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

/** Returns what does one thing after another; of what is asked for meanwhile, only the last. */
export function lastOf<T>(action: (wish: T) => Promise<unknown>): (wish: T) => Promise<void> {
  const wishes: T[] = [];
  let isBusy = false;
  return async (wish) => {
    wishes.splice(0, 1, wish);
    if (isBusy) return;
    isBusy = true;
    try {
      for (let next = wishes.pop(); next !== undefined; next = wishes.pop()) await action(next);
    } finally {
      isBusy = false;
    }
  };
}

/** Returns what does something once before the next frame: what it measures is laid out then anyway. */
export function beforePaint(action: () => void): () => void {
  let isAsked = false;
  const act = (): void => {
    isAsked = false;
    action();
  };
  return () => {
    if (!isAsked) requestAnimationFrame(act);
    isAsked = true;
  };
}

/**
 * Returns what has the focus within an element; marimo keeps widgets in a shadow tree, of which the document
 * knows nothing.
 */
export function focusedIn(element: Element): HTMLElement | null {
  const { activeElement } = element.getRootNode() as Document | ShadowRoot;
  return activeElement && element.contains(activeElement) ? (activeElement as HTMLElement) : null;
}

/** Returns the name by which a control is known when it is drawn anew. */
function focusName(control: HTMLElement | null): string {
  return control?.dataset["focus"] ?? control?.title ?? "";
}

/** Puts the focus on the control in an element that has a name. */
export function focusOn(element: HTMLElement, name: string): void {
  const controls = [...element.querySelectorAll<HTMLElement>("[data-focus], [title]")];
  controls.find((control) => focusName(control) === name)?.focus({ preventScroll: true });
}

/**
 * Replaces everything in an element; what has the name of what had the focus gets it again.
 *
 * A control that `draw` puts into a new place has lost the focus by then, so it is called afterwards.
 */
export function redraw(element: HTMLElement, draw: () => Child): void {
  const name = focusName(focusedIn(element));
  fill(element, [draw()]);
  if (name) focusOn(element, name);
}

/** Offers a text or data to the person as a file. */
export function download(name: string, type: string, content: string | Blob): void {
  const url = URL.createObjectURL(new Blob([content], { type }));
  // VS Code saves what it sees a click on, which has to be in the page.
  const link = h("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Returns a menu, and what closes it; leaving it closes it too. */
export function menu(label: Record<string, string>, words: Child, ...body: Child[]): HTMLDetailsElement {
  const element = h("details.fxi-menu", [
    h("summary.fxi-button", { ...label }, words),
    h("div.fxi-menu-body", body),
  ]);
  element.addEventListener("focusout", (event) => {
    if (!element.contains(event.relatedTarget as Node | null)) closeMenu(element);
  });
  element.addEventListener("keydown", (event) => event.key === "Escape" && closeMenu(element));
  return element;
}

/** Returns what can be chosen in a menu, which closes then. */
export function menuItem(words: string | null, choose: () => unknown, more: Attributes = {}): HTMLElement {
  const onclick = ({ currentTarget }: Event): void => {
    closeMenu((currentTarget as Element).closest("details")!);
    choose();
  };
  return h("button.fxi-item", { onclick, ...more }, words);
}

function closeMenu(element: HTMLDetailsElement): void {
  element.removeAttribute("open");
}
