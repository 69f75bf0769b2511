/** Files of overlays, dropped onto the graph or chosen. */

import { h } from "../base/dom";

/** Lets an element take files; returns what asks for one. */
export function takeFiles(element: HTMLElement, take: (file: File) => void): () => void {
  const input = h("input", { type: "file", accept: ".csv,.json", multiple: true });
  const each = (files: FileList | null | undefined): void => [...(files ?? [])].forEach((file) => take(file));
  input.addEventListener("change", () => {
    each(input.files);
    input.value = "";
  });
  const isFile = ({ dataTransfer }: DragEvent): boolean => dataTransfer?.types.includes("Files") ?? false;
  const mark = (on: boolean): void => void element.classList.toggle("fxi-receiving", on);
  element.addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    mark(true);
  });
  element.addEventListener("dragleave", () => mark(false));
  element.addEventListener("drop", (event) => {
    mark(false);
    if (!isFile(event)) return;
    event.preventDefault();
    // A notebook would take it for one of its own.
    event.stopPropagation();
    each(event.dataTransfer?.files);
  });
  return () => input.click();
}
