/** Several controls with one tab stop: arrow keys go from one to the next, and Tab leaves them. */

/**
 * Lets Tab come to the control of a group that had the focus last, at first to one that fits `home`. Up and down go to
 * the same control of the next item, where these have a `data-focus` such as `switch-…`. Returns what is to be
 * called when the group is drawn anew.
 */
export function rove(group: HTMLElement, selector: string, home = selector): () => void {
  let last: HTMLElement | null = null;
  const nameOf = (control: HTMLElement | null): string | undefined => control?.dataset["focus"];
  const kindOf = (control: HTMLElement): string | undefined => nameOf(control)?.split("-")[0];
  const all = (): HTMLElement[] => [...group.querySelectorAll<HTMLElement>(selector)];
  const usable = (): HTMLElement[] => {
    const enabled = all().filter((one) => !one.matches(":disabled"));
    const seen = enabled.filter((one) => one.checkVisibility?.() ?? true);
    // Nothing is seen before the page is there, and while a panel is folded.
    return seen.length > 0 ? seen : enabled;
  };
  const refresh = (): void => {
    const there = usable();
    const name = nameOf(last);
    const same = there.find((one) => one === last || (name !== undefined && nameOf(one) === name));
    const stop = same ?? there.find((one) => one.matches(home)) ?? there[0];
    for (const one of all()) one.tabIndex = one === stop ? 0 : -1;
  };
  group.addEventListener("focusin", ({ target }) => {
    if (!(target as HTMLElement).matches(selector)) return;
    last = target as HTMLElement;
    refresh();
  });
  group.addEventListener("keydown", (event) => {
    const from = event.target as HTMLElement;
    if (!from.matches(selector) || event.altKey || event.ctrlKey || event.metaKey) return;
    const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const kind = kindOf(from);
    if (across === undefined && (down === undefined || kind === undefined)) return;
    const there = across === undefined ? usable().filter((one) => kindOf(one) === kind) : usable();
    const next = there[there.indexOf(from) + (across ?? down)!];
    event.preventDefault();
    event.stopPropagation();
    next?.focus();
  });
  refresh();
  return refresh;
}
