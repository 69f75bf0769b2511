/**
 * Plays the page in which VS Code shows what the cells of a notebook give, as far as a widget sees it: the widget
 * manager is VS Code's own (`@vscode/jupyter-ipywidgets8`), which loads anywidget with requirejs; what the page does
 * with clicks, keys and the wheel, its elements, and (in vscode.css) its styles follow `webviewPreloads.ts` and
 * `webview/browser/pre/index.html` of microsoft/vscode and `src/webviews/webview-side/ipywidgets` of
 * microsoft/vscode-jupyter. Not played: VS Code itself, and the extension between page and kernel, in whose place
 * the page asks a Jupyter server. colab.html is a page of the kind in which Google Colab shows a widget; its
 * manager is still VS Code's, which brings the same style sheets of ipywidgets along.
 */

import { KernelAPI, ServerConnection } from "@jupyterlab/services";
import { KernelConnection } from "@jupyterlab/services/lib/kernel/default";
import { activate } from "@vscode/jupyter-ipywidgets8";

const WIDGET = "application/vnd.jupyter.widget-view+json";
const KEYBOARD_MS = 500;

/** What the page would have told VS Code. */
const told = { keys: [], wheels: 0, files: [] };

const scriptLoader = {
  widgetsRegisteredInRequireJs: new Set(),
  async loadWidgetScript(name) {
    requirejs.config({ paths: { [name]: new URL(`nbextensions/${name}/index`, location.href).pathname } });
    this.widgetsRegisteredInRequireJs.add(name);
  },
  successHandler() {},
  errorHandler: (...what) => reportError(new Error(`A widget was not loaded: ${what.join(" ")}`)),
};

async function start() {
  activate();
  window.vscIPyWidgets8.load();
  const serverSettings = ServerConnection.makeSettings({ baseUrl: `${location.origin}/` });
  const model = await KernelAPI.startNew({ name: "python3" }, serverSettings);
  const kernel = new KernelConnection({ model, serverSettings, handleComms: true });
  const manager = new window.vscIPyWidgets.WidgetManager(kernel, undefined, scriptLoader, () => {}, undefined);
  // The extension gives the page a kernel whose server is not there: messages arrive, what else is asked does not.
  const interrupt = kernel.interrupt.bind(kernel);
  kernel.interrupt = () => Promise.reject(new Error("There is no server."));
  return { kernel, manager, interrupt };
}

const started = start();

/** Runs a cell, and shows its widget in place of what was shown before. */
async function run(code) {
  const { kernel, manager } = await started;
  const output = document.querySelector("#container .output");
  output.replaceChildren();
  const future = kernel.requestExecute({ code });
  let shown;
  future.onIOPub = ({ content }) => {
    if (content.data?.[WIDGET]) shown ??= show(manager, content.data[WIDGET], output);
  };
  const { content } = await future.done;
  if (content.status !== "ok") throw new Error(content.traceback.join("\n"));
  await shown;
}

async function show(manager, data, output) {
  const item = div("cell-output-ipywidget-background");
  const element = div("cell-output-ipywidget-background");
  element.tabIndex = 0;
  element.setAttribute("role", "region");
  element.setAttribute("aria-label", "Interactive widget output");
  element.append(div("cell-output"));
  item.append(element);
  output.append(item);
  const model = await manager.get_model(data.model_id);
  const view = await manager.create_view(model, { el: element });
  await manager.display_view(data, view, { node: element });
  setTimeout(() => element.querySelectorAll("button:not([tabindex])").forEach(pressByKeys), KEYBOARD_MS);
}

/** What the extension does to each button of a widget. */
function pressByKeys(button) {
  button.tabIndex = 0;
  button.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    button.click();
  });
}

function div(name) {
  const element = document.createElement("div");
  element.className = name;
  return element;
}

/** VS Code saves what a link would download, if the click on it arrives here. */
async function save(link) {
  const blob = await (await fetch(link.href)).blob();
  const reader = new FileReader();
  reader.onload = () => told.files.push({ name: link.download, data: reader.result });
  reader.readAsDataURL(blob);
}

document.body.addEventListener("click", (event) => {
  const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement && node.href.startsWith("blob:"));
  if (!link) return;
  event.preventDefault();
  void save(link);
});
window.addEventListener("wheel", (event) => {
  if (!event.defaultPrevented) told.wheels += 1;
});
window.addEventListener("keydown", (event) => told.keys.push(event.key));

window.host = {
  told,
  run,
  interrupt: async () => (await started).interrupt(),
  stop: async () => (await started).kernel.shutdown(),
  setTheme(kind) {
    document.body.className = kind === "vscode-high-contrast-light" ? `${kind} vscode-high-contrast` : kind;
    document.body.dataset.vscodeThemeKind = kind;
  },
};
