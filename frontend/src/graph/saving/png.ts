/** A picture as pixels. */

import type { Drawing } from "./saved_picture";

const SCALE = 2;
/** What browsers allow of a canvas. */
const MOST_PIXELS = 120_000_000;
const LONGEST_SIDE = 16_000;

/** Draws a picture on paper white; rejects if no canvas can hold it. */
export async function rasterised({ svg, width, height }: Drawing): Promise<Blob> {
  const scale = Math.min(
    SCALE,
    LONGEST_SIDE / width,
    LONGEST_SIDE / height,
    Math.sqrt(MOST_PIXELS / (width * height)),
  );
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.ceil(width * scale), Math.ceil(height * scale)];
  const context = canvas.getContext("2d");
  if (!context) throw new Error("This browser has no canvas.");
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image(canvas.width, canvas.height);
    image.src = url;
    await image.decode();
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
  } finally {
    URL.revokeObjectURL(url);
  }
  return new Promise((resolve, reject) =>
    canvas.toBlob(
      (blob) => (blob ? resolve(blob) : reject(new Error("The picture is too large."))),
      "image/png",
    ),
  );
}
