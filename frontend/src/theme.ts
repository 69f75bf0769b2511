/** Whether the page around us is dark, for as long as it is shown. */

/** Calls back with the present theme, and again whenever it changes; returns how to stop. */
export function watchTheme(element: HTMLElement, changed: (dark: boolean) => void): () => void {
  const update = (): void => changed(isDark(element));
  const observer = new MutationObserver(update);
  const options = { attributes: true, attributeFilter: ["class", "style", "theme", "data-theme", "data-jp-theme-light", "data-vscode-theme-kind"] };
  observer.observe(document.documentElement, options);
  observer.observe(document.body, options);
  const media = window.matchMedia?.("(prefers-color-scheme: dark)");
  media?.addEventListener("change", update);
  update();
  return () => {
    observer.disconnect();
    media?.removeEventListener("change", update);
  };
}

function hostOf(element: Element): HTMLElement | null {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? (root.host as HTMLElement) : null;
}

/** Asks the hosts we know first, then looks at what is behind the element. */
export function isDark(element: HTMLElement): boolean {
  const { jpThemeLight, vscodeThemeKind, theme } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return /dark|high-contrast$/.test(vscodeThemeKind);
  const named = theme ?? document.documentElement.dataset["theme"] ?? document.documentElement.getAttribute("theme");
  if (named === "dark" || named === "light") return named === "dark";
  if (document.body.classList.contains("dark") || document.documentElement.classList.contains("dark")) return true;
  for (let around = element.parentElement ?? hostOf(element); around; around = around.parentElement ?? hostOf(around)) {
    const colour = getComputedStyle(around).backgroundColor.match(/[\d.]+/g)?.map(Number);
    if (colour && colour.length >= 3 && (colour[3] ?? 1) > 0.5) {
      const [red = 0, green = 0, blue = 0] = colour;
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
    }
  }
  return window.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
}
