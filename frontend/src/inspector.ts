/** What every inspector of a page runs: a viewer for a widget, which can be shown in several places. */

import type { AnyModel } from "@anywidget/types";
import { App } from "./app/app";
import { Layouts } from "./viewer/drawing/layout";
import { Viewer } from "./viewer/viewer";
import { WidgetKernel } from "./viewer/kernels/widget_kernel";

/** What is shown of one widget, in as many places as there are. */
export interface Shown {
  /** Shows it in an element; returns a function that takes it away again. */
  show(element: HTMLElement): () => void;
  dispose(): void;
}

export type ViewerOf = (model: AnyModel<Record<string, never>>, worker: string) => Shown;

/** What Jupyter's widget managers have of the kernel; those of other places have none. */
interface JupyterKernel {
  status?: string;
  interrupt?(): Promise<unknown>;
  isDisposed?: boolean;
  statusChanged?: Signal;
  disposed?: Signal;
}

type Signal = Record<"connect" | "disconnect", (slot: () => void) => unknown>;

/** Nothing comes of what was asked before. */
const GONE = new Set(["dead", "restarting", "autorestarting", "terminating"]);

export const viewerOf: ViewerOf = (model, worker) => {
  const kernel = new WidgetKernel(model);
  const { kernel: jupyter } = (model.widget_manager ?? {}) as { kernel?: JupyterKernel | null };
  const signals = [jupyter?.statusChanged, jupyter?.disposed];
  const followStatus = (): unknown =>
    (jupyter?.isDisposed || GONE.has(jupyter?.status ?? "")) && kernel.lose();
  for (const signal of signals) signal?.connect(followStatus);
  const elsewhere = async (outline: string): Promise<string> =>
    String((await kernel.ask({ type: "lay-out", outline })).value);
  const layouts = new Layouts(worker, elsewhere);
  const viewer = new Viewer(kernel, layouts);
  return {
    show(element) {
      const interrupt = jupyter?.interrupt ? async () => jupyter.interrupt!() : null;
      const isBusy = (): boolean => jupyter?.status === "busy";
      const app = new App(viewer, interrupt, isBusy);
      // A notebook may have many inspectors, and each that is used has a Graphviz of its own.
      app.element.addEventListener("pointerenter", () => layouts.prepare(), { once: true });
      element.classList.add("fxlab-host");
      element.classList.toggle("fxlab-framed", window.top !== window);
      app.element.append(inPlaceOf(String(model.get("_static_name" as never))));
      element.append(app.element);
      const leave = kernel.enter();
      return () => {
        leave();
        app.dispose();
      };
    },
    dispose: () => {
      for (const signal of signals) signal?.disconnect(followStatus);
      layouts.dispose();
    },
  };
};

/** Hides what stands in the place of the page until it is there, and where it cannot be. */
function inPlaceOf(name: string): HTMLStyleElement {
  const place = `[data-fxlab-static="${name}"]`;
  const style = document.createElement("style");
  style.textContent = `${place}, .jp-OutputArea-child:has(${place}) { display: none }`;
  return style;
}
