/** The entry: anywidget calls `initialize` once for a widget, and `render` for every place in which it is shown. */

import type { AnyModel, Initialize, Render } from "@anywidget/types";
import { App } from "./app/app";
import { Layouts } from "./viewer/drawing/layout";
import { Viewer } from "./viewer/viewer";
import { WidgetKernel } from "./viewer/widget_kernel";

/** What Jupyter's widget managers have of the kernel; those of other places have none. */
interface JupyterKernel {
  interrupt?(): Promise<unknown>;
}

function interruptOf(model: AnyModel): (() => Promise<unknown>) | null {
  const { kernel } = (model.widget_manager ?? {}) as { kernel?: JupyterKernel | null };
  return kernel?.interrupt ? async () => kernel.interrupt!() : null;
}

function viewerOf(model: AnyModel<Record<string, never>>): Viewer {
  const kernel = new WidgetKernel(model);
  const elsewhere = async (outline: string): Promise<string> =>
    String((await kernel.ask({ type: "lay-out", outline })).value);
  return new Viewer(kernel, new Layouts(() => kernel.layoutWorker(), elsewhere));
}

// One function for each widget: anywidget calls it, and all its views share what it holds.
export default () => {
  let viewer: Viewer | null = null;
  const initialize: Initialize<Record<string, never>> = ({ model }) => {
    viewer = viewerOf(model);
  };
  const render: Render<Record<string, never>> = ({ model, el }) => {
    const app = new App((viewer ??= viewerOf(model)), interruptOf(model));
    el.classList.add("fxlab-host");
    el.append(app.element);
    return () => app.dispose();
  };
  return { initialize, render };
};
