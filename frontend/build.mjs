// Bundles the front end into the Python package: for anywidget a loader, and what it loads; for reports a script, a style sheet, and the worker that lays graphs out.
import { build } from "esbuild";

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
await build({ ...shared, format: "esm", entryPoints: { inspector: "src/inspector.ts" } });
await build({ ...shared, format: "iife", entryPoints: { report: "src/report.ts" } });
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
