/**
 * The entry that every widget carries. What it runs is large, so that all inspectors of a notebook share it: a widget of its
 * own holds it, and where there are no such widgets, the kernel is asked for it.
 */

import type { AnyModel, Initialize, Render } from "@anywidget/types";
import type { ViewerOf } from "./inspector";

type Widget = AnyModel<Record<string, never>>;

/** What the widget that is shared holds. */
interface PageCode {
  code: string;
  css: string;
  worker: string;
}

interface Page {
  viewerOf: ViewerOf;
  code: PageCode;
}

interface Manager {
  get_model?(id: string): Promise<Pick<Widget, "get">>;
}

const REFERENCE = "IPY_MODEL_";
/** Version of the code -> the code, once for each page. */
const KEY = Symbol.for("fxlab.page-code");
const known = ((globalThis as { [KEY]?: Map<string, Promise<Page>> })[KEY] ??= new Map());

export default () => {
  let viewer: Promise<ReturnType<ViewerOf>> | null = null;
  // Once for each widget, whose places share what is shown.
  const viewerFor = (model: Widget) =>
    (viewer ??= pageFor(model).then(({ viewerOf, code }) => viewerOf(model, code.worker)));
  const initialize: Initialize<Record<string, never>> = ({ model }) => {
    const shown = viewerFor(model);
    shown.catch(() => {});
    return () =>
      void shown.then(
        ({ dispose }) => dispose(),
        () => {},
      );
  };
  const render: Render<Record<string, never>> = async ({ model, el }) => {
    const waiting = sayThatItLoads(el);
    try {
      const { code } = await pageFor(model);
      const style = document.createElement("style");
      style.textContent = code.css;
      const viewer = await viewerFor(model);
      waiting.replaceWith(style);
      return viewer.show(el);
    } catch (error) {
      waiting.textContent = "Loading the inspector failed. Run the cell again.";
      throw error;
    }
  };
  return { initialize, render };
};

/** Says at once that something is coming: the style sheet that it will have is not there yet. */
function sayThatItLoads(el: HTMLElement): HTMLElement {
  const waiting = document.createElement("p");
  waiting.setAttribute("role", "status");
  waiting.textContent = "Loading the inspector …";
  waiting.style.cssText =
    "margin:0;padding:48px 16px;border:1px solid rgb(128 128 128 / 35%);border-radius:10px;" +
    "font:13px/1.45 system-ui,sans-serif;text-align:center;opacity:.75";
  el.append(waiting);
  return waiting;
}

function pageFor(model: Widget): Promise<Page> {
  const version = String(model.get("_code_version"));
  let page = known.get(version);
  if (!page) {
    known.set(version, (page = load(model)));
    page.catch(() => known.delete(version));
  }
  return page;
}

async function load(model: Widget): Promise<Page> {
  const code = (await heldByWidget(model)) ?? (await asked(model));
  const url = URL.createObjectURL(new Blob([code.code], { type: "text/javascript" }));
  try {
    const { viewerOf } = (await import(url)) as Pick<Page, "viewerOf">;
    return { viewerOf, code };
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function heldByWidget(model: Widget): Promise<PageCode | null> {
  const reference = String(model.get("_code"));
  const { get_model: get } = (model.widget_manager ?? {}) as unknown as Manager;
  if (!get || !reference.startsWith(REFERENCE)) return null;
  try {
    const held = await get.call(model.widget_manager, reference.slice(REFERENCE.length));
    const [code, css, worker] = ["code", "css", "worker"].map((name) => held.get(name) as unknown);
    return code ? ({ code, css, worker } as PageCode) : null;
  } catch {
    return null;
  }
}

/** Asks the kernel. */
function asked(model: Widget): Promise<PageCode> {
  const request = `code-${Math.random().toString(36).slice(2)}`;
  return new Promise((resolve, reject) => {
    const answer = (content: unknown): void => {
      const { request: of, value } = (content ?? {}) as { request?: unknown; value?: PageCode };
      if (of !== request) return;
      model.off("msg:custom", answer);
      if (value?.code) resolve(value);
      else reject(new Error("The kernel has not sent the inspector."));
    };
    model.on("msg:custom", answer);
    model.send({ type: "page-code", request });
  });
}
