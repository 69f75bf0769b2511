/** What arrives from a kernel, checked: a page may be newer or older than it, or have none. */

import type { Picture } from "./protocol";

/** A picture, or nothing as long as there is none. */
export function isPicture(value: Picture | Record<string, never> | undefined): value is Picture {
  return typeof value?.["svg"] === "string";
}

/** Returns an object that has these keys, or null. */
export function objectWith(value: unknown, ...keys: string[]): Record<string, unknown> | null {
  return isObject(value) && keys.every((key) => key in value) ? value : null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
