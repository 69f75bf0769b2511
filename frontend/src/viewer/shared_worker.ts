/** The code that lays graphs out, which is large: the inspectors of a page share it, and one of them keeps it. */

import type { AnyModel } from "@anywidget/types";

type Widget = AnyModel<Record<string, never>>;

const TRAIT = "_shown_layout_worker";
const KEY = Symbol.for("fxlab.layout-worker");
const page = globalThis as { [KEY]?: Promise<string> };

/** Shares the code that a widget brings along from a saved notebook. */
export function offerWorker(widget: Widget): void {
  const [own] = widget.get(TRAIT) as unknown as string[];
  if (own) page[KEY] ??= Promise.resolve(own);
}

/** Returns the code; it is asked for once in a page, and kept with that widget, where a notebook saves it. */
export function sharedWorker(widget: Widget, ask: () => Promise<string>): Promise<string> {
  return (page[KEY] ??= ask().then(
    (code) => {
      // In place: it is not sent back.
      (widget.get(TRAIT) as unknown as string[]).push(code);
      return code;
    },
    (error: unknown) => {
      delete page[KEY];
      throw error;
    },
  ));
}
