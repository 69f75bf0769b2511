/** What arrives from the kernel, checked: a page may be newer or older than it, or have none. */

import type { FromKernel, NodesFound, Offer, Picture, SearchResult } from "./protocol";

/** Returns a message of the kernel, or null if it is none that this page knows. */
export function readMessage(content: unknown): FromKernel | null {
  if (!isObject(content)) return null;
  switch (content["type"]) {
    case "focus":
      return isListOf(content["boxes"], "string")
        ? {
            type: "focus",
            boxes: content["boxes"] as string[],
            gently: content["gently"] === true,
            before: content["before"] === true,
          }
        : null;
    case "found":
      return typeof content["request"] === "string" && Array.isArray(content["results"])
        ? {
            type: "found",
            request: content["request"],
            results: content["results"].filter(isSearchResult),
            total: Number(content["total"]) || 0,
            nodes: Number(content["nodes"]) || 0,
            message: typeof content["message"] === "string" ? content["message"] : "",
          }
        : null;
    case "offers":
      return typeof content["request"] === "string" && Array.isArray(content["offers"])
        ? { type: "offers", request: content["request"], offers: content["offers"].filter(isOffer) }
        : null;
    case "dot":
      return typeof content["request"] === "string" && typeof content["text"] === "string"
        ? { type: "dot", request: content["request"], text: content["text"] }
        : null;
    case "pdf":
      return typeof content["request"] === "string" ? { type: "pdf", request: content["request"] } : null;
    case "done":
      return { type: "done" };
    default:
      return null;
  }
}

/** Whether a state is complete: a page may be restored without a kernel, with nothing in it. */
export function isPicture(value: unknown): value is Picture {
  return (
    isObject(value) &&
    typeof value["svg"] === "string" &&
    isObject(value["boxes"]) &&
    isObject(value["edges"]) &&
    isObject(value["matches"]) &&
    Array.isArray(value["signatures"])
  );
}

export function isNodesFound(value: unknown): value is NodesFound {
  return (
    isObject(value) &&
    typeof value["query"] === "string" &&
    typeof value["message"] === "string" &&
    isObject(value["boxes"]) &&
    isObject(value["before"])
  );
}

function isSearchResult(value: unknown): value is SearchResult {
  return (
    isObject(value) &&
    (value["kind"] === "node" || value["kind"] === "group") &&
    typeof value["name"] === "string" &&
    typeof value["text"] === "string"
  );
}

function isOffer(value: unknown): value is Offer {
  return (
    isObject(value) &&
    ["key", "title", "description"].every((name) => typeof value[name] === "string") &&
    Array.isArray(value["parameters"]) &&
    value["parameters"].every(isObject)
  );
}

function isListOf(value: unknown, type: "string"): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === type);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
