/** The entry: anywidget calls `render` for every place in which the inspector is shown. */

import type { AnyModel, Render } from "@anywidget/types";
import { App } from "./app/app";
import type { Model } from "./base/model";

/** What Jupyter's widget managers have of the kernel; those of other places have none. */
interface Kernel {
  interrupt?(): Promise<unknown>;
}

function interruptOf(model: AnyModel): (() => Promise<unknown>) | null {
  const { kernel } = (model.widget_manager ?? {}) as { kernel?: Kernel | null };
  return kernel?.interrupt ? async () => kernel.interrupt!() : null;
}

/** The page's name of a value -> the trait that carries it, which is private in Python. */
const traitOf = (name: string): string => (name === "height" ? name : `_shown_${name}`);

function modelOf(widget: AnyModel<Record<string, never>>): Model {
  const eventOf = (event: string) =>
    event.replace(/^change:(.*)$/, (_, name: string) => `change:${traitOf(name)}`);
  type Callback = (...values: unknown[]) => void;
  return {
    get: (name) => widget.get(traitOf(name)),
    set: (name, value) => widget.set(traitOf(name), value as never),
    save_changes: () => widget.save_changes(),
    send: (content) => widget.send(content),
    on: (event, callback) => widget.on(eventOf(event), callback as Callback),
    off: (event, callback) => widget.off(eventOf(event), callback as Callback),
  };
}

const render: Render<Record<string, never>> = ({ model, el }) => {
  const app = new App(modelOf(model), interruptOf(model));
  el.classList.add("fxlab-host");
  el.append(app.element);
  return () => app.dispose();
};

export default { render };
