/** The entry of a report: the inspector of a session that is embedded in the page, or of several, one at a time. */

import { App } from "./app/app";
import { Several, type Opened } from "./app/several";
import { h } from "./base/dom";
import type { WrittenContents } from "./panels/contents";
import { Layouts } from "./viewer/drawing/layout";
import { ReportKernel, type WrittenReport } from "./viewer/kernels/report_kernel";
import { Viewer } from "./viewer/viewer";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

const layouts = new Layouts(textOf("fxlab-layout-worker"));
layouts.prepare();

function opened(id: string, graph = 0): Opened {
  const kernel = new ReportKernel(JSON.parse(textOf(id)) as WrittenReport, graph);
  const app = new App(new Viewer(kernel, layouts), null, (dot) => layouts.layOut(dot));
  const close = (): void => {
    app.dispose();
    kernel.dispose();
  };
  return { element: app.element, close };
}

const contents = textOf("fxlab-contents");
document.body.append(
  contents
    ? new Several(JSON.parse(contents) as WrittenContents, (number) =>
        opened(`fxlab-session-${number}`, number),
      ).element
    : h("main", {}, opened("fxlab-session").element),
);
