/** The entry: anywidget calls `render` for every place in which the inspector is shown. */

import type { AnyModel, Render } from "@anywidget/types";
import { App } from "./app/app";
import type { Model } from "./base/model";
import type { State } from "./base/protocol";

/** What Jupyter's widget managers have of the kernel; those of other places have none. */
interface Kernel {
  interrupt?(): Promise<unknown>;
}

function interruptOf(model: AnyModel<State>): (() => Promise<unknown>) | null {
  const { kernel } = (model.widget_manager ?? {}) as { kernel?: Kernel | null };
  return kernel?.interrupt ? async () => kernel.interrupt!() : null;
}

const render: Render<State> = ({ model, el }: { model: AnyModel<State>; el: HTMLElement }) => {
  const app = new App(model as unknown as Model, interruptOf(model));
  el.classList.add("fxlab-host");
  el.append(app.element);
  return () => app.dispose();
};

export default { render };
