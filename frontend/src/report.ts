/** The entry of a report: the inspector of a session that is embedded in the page. */

import { App } from "./app";
import type { SessionData } from "./offline/data";
import { OfflineKernel } from "./offline/kernel";
import { Layouts } from "./offline/layout";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

const layouts = new Layouts(textOf("fxlab-layout-worker"));
const kernel = new OfflineKernel(JSON.parse(textOf("fxlab-session")) as SessionData, layouts);
document.body.append(new App(kernel).element);
void kernel.start();
