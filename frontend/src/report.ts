/** The entry of a report: the inspector of a session that is embedded in the page, or of several, one at a time. */

import { App } from "./app/app";
import { Several, type Opened } from "./app/several";
import { h } from "./base/dom";
import { Layouts } from "./viewer/drawing/layout";
import { ReportKernel } from "./viewer/kernels/report_kernel";
import { Viewer } from "./viewer/viewer";
import type { WrittenContents, WrittenReport } from "./base/wire";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

const layouts = new Layouts(textOf("fxlab-layout-worker"));
layouts.prepare();

function opened(id: string, graph = 0): Opened {
  const element = h("div");
  element.style.display = "contents";
  let close: (() => void) | null = null;
  let isClosed = false;
  const show = (text: string): void => {
    if (isClosed) return;
    const kernel = new ReportKernel(JSON.parse(text) as WrittenReport, graph);
    const app = new App(new Viewer(kernel, layouts));
    element.append(app.element);
    close = () => {
      app.dispose();
      kernel.dispose();
    };
  };
  if (document.getElementById(id)?.getAttribute("type") === "application/gzip") {
    void unpacked(textOf(id)).then(show);
  } else show(textOf(id));
  return {
    element,
    close: () => {
      isClosed = true;
      close?.();
    },
  };
}

/** The text that was compressed, and written in the letters of base64. */
async function unpacked(letters: string): Promise<string> {
  const bytes = Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return await new Response(stream).text();
}

const contents = textOf("fxlab-contents");
document.body.append(
  contents
    ? new Several(JSON.parse(contents) as WrittenContents, (number) =>
        opened(`fxlab-session-${number}`, number),
      ).element
    : h("main", opened("fxlab-session").element),
);
