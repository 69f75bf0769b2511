/** The inspector on all of the screen, for the button of the toolbar. */

export class FullScreen {
  /** What lies behind it, which nothing reaches meanwhile. */
  private behind: HTMLElement[] = [];

  /** `changed` is called when it has begun or ended, whoever has ended it. */
  constructor(
    private readonly element: HTMLElement,
    private readonly changed: () => void,
  ) {
    element.addEventListener("fullscreenchange", () => this.follow());
  }

  get isOn(): boolean {
    const root = this.element.getRootNode() as Document | ShadowRoot;
    return root.fullscreenElement === this.element;
  }

  async begin(): Promise<void> {
    await this.element.requestFullscreen();
  }

  async end(): Promise<void> {
    if (this.isOn) await document.exitFullscreen().catch(() => {});
  }

  private follow(): void {
    const { element, isOn } = this;
    const place = element.parentElement;
    // Its place is kept, or the notebook behind it would scroll.
    if (place) place.style.minHeight = isOn ? `${place.offsetHeight}px` : "";
    element.classList.toggle("fxi-full", isOn);
    if (isOn) this.behind = [...surroundings(element)].filter((other) => !other.inert);
    for (const other of this.behind) other.inert = isOn;
    if (!isOn) this.behind = [];
    this.changed();
  }
}

/** Returns everything of the page that is neither in an element nor around it. */
function* surroundings(element: HTMLElement): Generator<HTMLElement> {
  for (let at: Node = element; at !== document.body; at = at.parentNode ?? (at as ShadowRoot).host)
    for (const child of at.parentNode?.children ?? [])
      if (child !== at && child instanceof HTMLElement) yield child;
}
