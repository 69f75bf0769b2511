/** How a query is read: words, and terms such as `op:call_module`. */

import { FIELDS } from "../../base/query_help";

/** Fields that a group has too; a query for any other finds nodes alone. A bare word has no field. */
export const OF_GROUPS: ReadonlySet<string> = new Set(["", "module", "class"]);
const MOST_TERMS = 50;
const LONGEST_QUOTE = 60;
/** What stands between terms. */
const SPACE = " \\t\\n\\r\\f\\v\\u00a0";
const TERM = new RegExp(
  `(-?)(?:([A-Za-z_]+):(?!:))?("[^"]*"?|\\([^)]*\\)?|\\[[^\\]]*\\]?|[^${SPACE}]*)[${SPACE}]*`,
  "g",
);
/** Between alternatives, and not in quotes. */
const OR = new RegExp(`[${SPACE}]+OR[${SPACE}]+(?=(?:[^"]*"[^"]*")*[^"]*$)`);
const MARGIN = new RegExp(`^[${SPACE}]+|[${SPACE}]+$`, "g");
const EXAMPLES = new Map(FIELDS.map(({ field, example }) => [field, example]));

/** A query that cannot be answered; its message is a line for who wrote it. */
export class QueryError extends Error {}

export interface Term {
  /** Empty for a bare word. */
  field: string;
  value: string;
  negated: boolean;
}

/** Returns the terms of a query: of each of the alternatives that `OR` stands between. */
export function parseQuery(text: string): Term[][] {
  return text.split(OR).map(parseTerms);
}

function parseTerms(text: string): Term[] {
  const terms = new Map<string, Term>();
  for (const [, minus, name = "", value] of text.replace(MARGIN, "").matchAll(TERM)) {
    const field = name.toLowerCase();
    let word = value!.replace(/^"+|"+$/g, "");
    let negated = minus === "-";
    if (field && !EXAMPLES.has(field))
      throw new QueryError(
        `There is no field ${quoted(field)}. Fields are ${[...EXAMPLES.keys()].join(", ")}.`,
      );
    if (field && !word) throw new QueryError(`${field}: needs a value, such as ${EXAMPLES.get(field)}`);
    if (negated && !field && !value) [negated, word] = [false, "-"];
    if (word) terms.set(JSON.stringify([field, word, negated]), { field, value: word, negated });
  }
  if (terms.size > MOST_TERMS) throw new QueryError(`A query has at most ${MOST_TERMS} terms.`);
  return [...terms.values()];
}

/** Returns a text in quotes, shortened if it is long. */
export function quoted(text: string): string {
  const letters = [...text];
  return letters.length <= LONGEST_QUOTE ? `"${text}"` : `"${letters.slice(0, LONGEST_QUOTE).join("")}…"`;
}
