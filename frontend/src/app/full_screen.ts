/** The inspector on all of the screen; or over all of the window, where the browser refuses that. */

import { focusedIn } from "../base/dom";

const CAN_HAVE_FOCUS = "button, input, select, summary, [tabindex]";

export class FullScreen {
  private isFilling = false;
  /** What lies behind it, which nothing reaches meanwhile. */
  private behind: HTMLElement[] = [];
  private isShown = false;

  /** `changed` is called when it has begun or ended, whoever has ended it. */
  constructor(
    private readonly element: HTMLElement,
    private readonly changed: () => void,
  ) {
    element.addEventListener("fullscreenchange", () => this.follow());
    // Before the search field, which keeps its keys to itself.
    element.addEventListener("keydown", (event) => event.key === "Tab" && this.isOn && this.goRound(event), {
      capture: true,
    });
  }

  get isOn(): boolean {
    return this.isFilling || this.isBrowsers;
  }

  /** Whether it fills the window alone, so that the browser does not end it with Escape. */
  get fillsWindow(): boolean {
    return this.isFilling;
  }

  async begin(): Promise<void> {
    if (this.isOn) return;
    try {
      await this.element.requestFullscreen();
    } catch {
      this.isFilling = true;
      this.follow();
    }
  }

  async end(): Promise<void> {
    if (this.isBrowsers) await document.exitFullscreen().catch(() => {});
    this.isFilling = false;
    this.follow();
  }

  private get isBrowsers(): boolean {
    const root = this.element.getRootNode() as Document | ShadowRoot;
    return root.fullscreenElement === this.element;
  }

  /** Goes from the last to the first, and back: what is around it, as a notebook's cell, can have the focus too. */
  private goRound(event: KeyboardEvent): void {
    const all = [...this.element.querySelectorAll<HTMLElement>(CAN_HAVE_FOCUS)].filter(
      (one) =>
        one.tabIndex >= 0 &&
        !one.matches(":disabled") &&
        one.getClientRects().length > 0 &&
        getComputedStyle(one).visibility !== "hidden",
    );
    const [first, last] = [all[0], all.at(-1)];
    const focused = focusedIn(this.element);
    if (focused !== (event.shiftKey ? first : last)) return;
    event.preventDefault();
    (event.shiftKey ? last : first)?.focus();
  }

  private follow(): void {
    const { element, isOn } = this;
    if (isOn === this.isShown) return;
    this.isShown = isOn;
    const place = element.parentElement;
    // Its place is kept, or the notebook behind it would scroll.
    if (place) place.style.minHeight = isOn ? `${place.offsetHeight}px` : "";
    element.classList.toggle("fxi-full", isOn);
    // In the layer above all, as nothing of the page around clips it or lies over it there.
    if (this.isFilling && "showPopover" in element) {
      element.popover = "manual";
      element.showPopover();
    } else element.popover = null;
    if (isOn) this.behind = surroundings(element).filter((other) => !other.inert);
    for (const other of this.behind) other.inert = isOn;
    if (!isOn) this.behind = [];
    this.changed();
  }
}

/** Returns everything of the page that is neither in an element nor around it. */
function surroundings(element: HTMLElement): HTMLElement[] {
  const others: HTMLElement[] = [];
  let at: Element = element;
  for (;;) {
    const around: ParentNode | null = at.parentNode as ParentNode | null;
    if (!around) return others;
    others.push(
      ...([...around.children].filter(
        (child) => child !== at && child instanceof HTMLElement,
      ) as HTMLElement[]),
    );
    if (around === document.body || around instanceof Document) return others;
    at = around instanceof ShadowRoot ? around.host : (around as Element);
  }
}
