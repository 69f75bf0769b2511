/** The worker in which Graphviz runs: a page stays alive meanwhile, and can give a layout up. */

import { Graphviz } from "@hpcc-js/wasm-graphviz";
import type { LayoutAnswer, LayoutRequest } from "./layout";

// Loads while the page is being set up.
const graphviz = Graphviz.load();

self.addEventListener("message", async ({ data: { number, dot } }: MessageEvent<LayoutRequest>) => {
  let answer: LayoutAnswer;
  try {
    answer = { number, svg: (await graphviz).dot(dot, "svg") };
  } catch (error) {
    answer = { number, error: error instanceof Error ? error.message : String(error) };
  }
  self.postMessage(answer);
});
