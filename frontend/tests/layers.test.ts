/// <reference types="vite/client" />
/** Rooms of the page import those below them alone: what draws and lists knows nothing of who asks it to. */

import { describe, expect, it } from "vitest";

const BELOW: Record<string, string[]> = {
  base: [],
  code: ["base"],
  graph: ["base"],
  values: ["base"],
  tables: ["base", "code"],
  panels: ["base", "graph", "values"],
  viewer: ["base"],
  app: ["base", "code", "graph", "panels", "tables", "viewer"],
};
const SOURCES = import.meta.glob<string>("../src/*/**/*.ts", {
  query: "?raw",
  eager: true,
  import: "default",
});
const FILES = Object.entries(SOURCES).map(([path, text]) => [path.slice("../src/".length), text] as const);

/** The rooms that a file of a room imports. */
function imported(path: string, text: string): string[] {
  const here = new URL(path, "https://page/");
  return [...text.matchAll(/from "(\.[^"]+)"/g)].map(
    ([, other]) => new URL(other!, here).pathname.split("/")[1]!,
  );
}

describe("layers of the page", () => {
  it("have every room", () => {
    expect(new Set(FILES.map(([path]) => path.split("/")[0]))).toEqual(new Set(Object.keys(BELOW)));
  });

  it.each(Object.entries(BELOW))("%s imports what is below it alone", (room, below) => {
    const wrong = FILES.filter(([path]) => path.startsWith(`${room}/`)).flatMap(([path, text]) =>
      imported(path, text)
        .filter((other) => ![room, ...below].includes(other))
        .map((other) => `${path} imports ${other}`),
    );
    expect(wrong).toEqual([]);
  });
});
