/** What every inspector of a page runs: a viewer for a widget, which can be shown in several places. */

import type { AnyModel } from "@anywidget/types";
import { App } from "./app/app";
import { Layouts } from "./viewer/drawing/layout";
import { Viewer } from "./viewer/viewer";
import { WidgetKernel } from "./viewer/widget_kernel";

/** Returns a function that shows a widget in an element and returns one that takes it away. */
export type ViewerOf = (
  model: AnyModel<Record<string, never>>,
  worker: string,
) => (element: HTMLElement) => () => void;

/** What Jupyter's widget managers have of the kernel; those of other places have none. */
interface JupyterKernel {
  interrupt?(): Promise<unknown>;
}

export const viewerOf: ViewerOf = (model, worker) => {
  const kernel = new WidgetKernel(model);
  const elsewhere = async (outline: string): Promise<string> =>
    String((await kernel.ask({ type: "lay-out", outline })).value);
  const viewer = new Viewer(kernel, new Layouts(worker, elsewhere));
  return (element) => {
    const app = new App(viewer, interruptOf(model));
    element.classList.add("fxlab-host");
    element.append(app.element);
    return () => app.dispose();
  };
};

function interruptOf(model: AnyModel): (() => Promise<unknown>) | null {
  const { kernel } = (model.widget_manager ?? {}) as { kernel?: JupyterKernel | null };
  return kernel?.interrupt ? async () => kernel.interrupt!() : null;
}
