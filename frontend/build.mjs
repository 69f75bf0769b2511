// Bundles the inspector into the Python package: one ES module for anywidget, one style sheet.
import { build } from "esbuild";

const outdir = new URL("../fxlab/notebook/static/", import.meta.url).pathname;

await build({
  entryPoints: { inspector: "src/inspector.ts" },
  outdir,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
await build({
  entryPoints: { inspector: "src/theme/inspector.css" },
  outdir,
  bundle: true,
  minify: true,
  charset: "utf8",
  logLevel: "warning",
});
