/** What arrives from a kernel, checked: a page may be newer or older than it, or have none. */

import type { Picture } from "./protocol";
import type { Offer } from "./wire";

/** A picture, or nothing as long as there is none. */
export function isPicture(value: Picture | Record<string, never> | undefined): value is Picture {
  return typeof value?.["svg"] === "string";
}

/** Returns the offers among what a kernel has answered. */
export function offersIn(value: unknown): Offer[] {
  return Array.isArray(value) ? value.filter(isOffer) : [];
}

/** Returns an object that has these keys, or null. */
export function objectWith(value: unknown, ...keys: string[]): Record<string, unknown> | null {
  return isObject(value) && keys.every((key) => key in value) ? value : null;
}

function isOffer(value: unknown): value is Offer {
  return (
    isObject(value) &&
    ["key", "title", "description"].every((name) => typeof value[name] === "string") &&
    Array.isArray(value["parameters"]) &&
    value["parameters"].every(isObject)
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
