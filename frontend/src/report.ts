/** The entry of a report: the inspector of a session that is embedded in the page. */

import { App } from "./app/app";
import { Layouts } from "./viewer/drawing/layout";
import { ReportKernel, type WrittenReport } from "./viewer/report_kernel";
import { Viewer } from "./viewer/viewer";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

const kernel = new ReportKernel(JSON.parse(textOf("fxlab-session")) as WrittenReport);
const layouts = new Layouts(textOf("fxlab-layout-worker"));
layouts.prepare();
const main = document.createElement("main");
main.append(new App(new Viewer(kernel, layouts)).element);
document.body.append(main);
