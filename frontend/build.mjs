// Bundles the front end into the Python package: for anywidget a loader, and what it loads; for reports a script, a style sheet, and the worker that lays graphs out.
import { readFileSync } from "node:fs";

import { build } from "esbuild";

/** The licence of what the tables are made with must go wherever they go. */
const tanStack = readFileSync(new URL("../licenses/MIT-TanStack.txt", import.meta.url), "utf8");
const tables = { js: `/*! Holds TanStack Table 9.3.1 and TanStack Store 0.11.2.\n\n${tanStack.trim()} */` };

const shared = {
  outdir: new URL("../fxlab/html_report/static/", import.meta.url).pathname,
  bundle: true,
  minify: true,
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};

await build({ ...shared, format: "esm", entryPoints: { loader: "src/loader.ts" } });
await build({ ...shared, format: "esm", banner: tables, entryPoints: { inspector: "src/inspector.ts" } });
await build({ ...shared, format: "iife", banner: tables, entryPoints: { report: "src/report.ts" } });
// Each report carries Graphviz along, and so its notice.
const notice =
  "/*! Holds Graphviz 16.1.0 (EPL-2.0, without warranty; source: https://gitlab.com/graphviz/graphviz), " +
  "compiled and wrapped by @hpcc-js/wasm-graphviz 1.29.2 (Apache-2.0). */";
await build({
  ...shared,
  format: "iife",
  banner: { js: notice },
  entryPoints: { layout_worker: "src/viewer/drawing/layout_worker.ts" },
});
await build({
  ...shared,
  entryPoints: { inspector: "src/theme/inspector.css", report: "src/theme/report.css" },
});
