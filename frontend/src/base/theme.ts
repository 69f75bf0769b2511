/** How the page around us looks, for as long as it is shown. */

const ATTRIBUTES = ["class", "style", "theme", "data-theme", "data-jp-theme-light", "data-vscode-theme-kind"];
const DARK = "(prefers-color-scheme: dark)";
const PRINT = "print";
const HIGH_CONTRAST = "(prefers-contrast: more)";

/** Gives an element the present theme, and another whenever it changes; returns how to stop. */
export function followTheme(element: HTMLElement): () => void {
  const update = (): void => {
    element.dataset["theme"] = isDark(element) ? "dark" : "light";
    element.dataset["contrast"] = isHighContrast() ? "more" : "normal";
  };
  const observer = new MutationObserver(update);
  const options = { attributes: true, attributeFilter: ATTRIBUTES };
  observer.observe(document.documentElement, options);
  observer.observe(document.body, options);
  const preferences = [DARK, PRINT, HIGH_CONTRAST].map((query) => window.matchMedia?.(query));
  for (const preference of preferences) preference?.addEventListener("change", update);
  update();
  return () => {
    observer.disconnect();
    for (const preference of preferences) preference?.removeEventListener("change", update);
  };
}

function hostOf(element: Element): HTMLElement | null {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? (root.host as HTMLElement) : null;
}

/** Asks the hosts we know first, then looks at what is behind the element; paper is light. */
function isDark(element: HTMLElement): boolean {
  if (window.matchMedia?.(PRINT).matches) return false;
  const { jpThemeLight, vscodeThemeKind, theme } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return /dark|high-contrast$/.test(vscodeThemeKind);
  const named =
    theme ?? document.documentElement.dataset["theme"] ?? document.documentElement.getAttribute("theme");
  if (named === "dark" || named === "light") return named === "dark";
  if (document.body.classList.contains("dark") || document.documentElement.classList.contains("dark"))
    return true;
  for (
    let around = element.parentElement ?? hostOf(element);
    around;
    around = around.parentElement ?? hostOf(around)
  ) {
    const colour = getComputedStyle(around)
      .backgroundColor.match(/[\d.]+/g)
      ?.map(Number);
    if (colour && colour.length >= 3 && (colour[3] ?? 1) > 0.5) {
      const [red = 0, green = 0, blue = 0] = colour;
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
    }
  }
  return window.matchMedia?.(DARK).matches ?? false;
}

/** VS Code has themes of high contrast whatever the system prefers. */
function isHighContrast(): boolean {
  const isPreferred = window.matchMedia?.(HIGH_CONTRAST).matches ?? false;
  return (
    isPreferred || (document.body.dataset["vscodeThemeKind"]?.startsWith("vscode-high-contrast") ?? false)
  );
}
