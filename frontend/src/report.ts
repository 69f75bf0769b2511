/** The entry of a report: the inspector of a session that is embedded in the page. */

import { App } from "./app/app";
import { completed, type SessionData, type WrittenLook } from "./local/data";
import { LocalKernel } from "./local/kernel";
import { Layouts } from "./local/drawing/layout";

function textOf(id: string): string {
  return document.getElementById(id)?.textContent ?? "";
}

const written = JSON.parse(textOf("fxlab-session")) as SessionData<WrittenLook>;
const layouts = new Layouts(textOf("fxlab-layout-worker"), written.layouts);
const kernel = new LocalKernel({ ...written, looks: completed(written.looks) }, layouts);
const main = document.createElement("main");
main.append(new App(kernel).element);
document.body.append(main);
void kernel.start();
