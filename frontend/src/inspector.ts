/** The entry: anywidget calls `render` for every place in which the inspector is shown. */

import type { AnyModel, Render } from "@anywidget/types";
import { App, type Model } from "./app";
import type { State } from "./protocol";

const render: Render<State> = ({ model, el }: { model: AnyModel<State>; el: HTMLElement }) => {
  const app = new App(model as unknown as Model);
  el.classList.add("fxlab-host");
  el.append(app.element);
  return () => app.dispose();
};

export default { render };
