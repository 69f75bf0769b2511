/** The menu that saves the graph as it is shown, or the passes as code. */

import { copied, download, menu, menuItem } from "../base/dom";
import type { FileSuffix } from "../base/protocol";
import { type Drawing, rasterised } from "../graph/saved_picture";

export interface ExportActions {
  /** The graph as it is saved; null as long as there is none. */
  drawing(): Drawing | null;
  code(): string;
  /** Name of the model. */
  name(): string;
  /** Asks the kernel for a file, whose name ends so. */
  ask(suffix: FileSuffix): void;
  fail(title: string, text: string): void;
}

export class Exports {
  readonly element: HTMLDetailsElement;

  constructor(private readonly actions: ExportActions) {
    const file = (words: string, suffix: FileSuffix): HTMLElement =>
      menuItem(words, () => actions.ask(suffix), { class: "fxi-needs-kernel" });
    this.element = menu(
      { title: "Export the graph or the passes" },
      "Export",
      menuItem("SVG picture", () => this.saveSvg()),
      menuItem("PNG picture", () => this.savePng()),
      file("HTML report", "html"),
      file("PDF", "pdf"),
      file("Graphviz DOT", "dot"),
      menuItem("Python code", () => this.save("py", "text/x-python", actions.code()), {
        title: "Code that applies the passes that are on",
      }),
      menuItem("Copy Python code", () => this.copy(actions.code(), "Export the code as a file.")),
      menuItem("Copy link to this view", () => this.copy(location.href, "Take it from the address bar."), {
        class: "fxi-needs-address",
      }),
    );
  }

  /** Offers a file, named after the model. */
  save(suffix: string, type: string, content: string | Blob): void {
    const name = this.actions
      .name()
      .replace(/[^\w.-]+/g, "_")
      .slice(0, 60);
    download(`${name || "graph"}.${suffix}`, type, content);
  }

  private saveSvg(): void {
    const drawing = this.actions.drawing();
    if (drawing) this.save("svg", "image/svg+xml", drawing.svg);
  }

  /** Draws the SVG, as it is saved, on a canvas. */
  private async savePng(): Promise<void> {
    const drawing = this.actions.drawing();
    if (!drawing) return;
    const blob = await rasterised(drawing).catch(() => null);
    if (blob) this.save("png", "image/png", blob);
    else
      this.actions.fail(
        "Exporting a PNG failed",
        "The picture is too large. Close some groups, or export SVG.",
      );
  }

  /** Copies a text, or says what else to do. */
  private async copy(text: string, otherwise: string): Promise<void> {
    if (!(await copied(text)))
      this.actions.fail("Copying failed", `The browser denied access to the clipboard. ${otherwise}`);
  }
}
