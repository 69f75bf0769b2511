/** Long names and long lists, so that they fit and can still be told apart. */

import { h } from "./dom";
import { counted, grouped } from "./format";

const ELLIPSIS = "…";
/** A beginning that is shorter than this is not worth a mark in its place. */
const SHORTEST_PREFIX = 4;

/**
 * Returns names without the beginning that all of them share, and shortened in the middle, where names of
 * modules and nodes differ least.
 */
export function shortNames(names: readonly string[], longest = 36): string[] {
  const prefix = commonPrefix(names);
  return names.map((name) => {
    const rest = prefix > 0 ? ELLIPSIS + name.slice(prefix) : name;
    return elideMiddle(rest, longest);
  });
}

/** Returns a text of at most so many characters; what is left out of a longer one is in its middle. */
export function elideMiddle(text: string, longest: number): string {
  // By code points, so that no character is torn apart.
  const characters = [...text];
  if (characters.length <= longest) return text;
  const room = longest - ELLIPSIS.length;
  const head = Math.floor(room / 2);
  return [...characters.slice(0, head), ELLIPSIS, ...characters.slice(head - room)].join("");
}

/** How a long list is shown at first: how many of its first and of its last items. */
export interface Ends {
  first: number;
  last: number;
}

/** Returns how long the beginning is that names share, up to a separator and with something left of each. */
function commonPrefix(names: readonly string[]): number {
  const [one, ...others] = names;
  if (one === undefined || others.length === 0) return 0;
  let shared = Math.min(...names.map((name) => name.length - 1));
  for (const other of others) for (let i = 0; i < shared; i += 1) if (other[i] !== one[i]) shared = i;
  const separator = Math.max(...[..."._/"].map((sign) => one.lastIndexOf(sign, shared - 1)));
  return shared > 0 && separator + 1 >= SHORTEST_PREFIX ? separator + 1 : 0;
}

/** Returns a list of items, and a button in the place of those in the middle if they are many. */
export function elidedList(items: HTMLElement[], { first, last }: Ends): HTMLElement {
  // Nothing is left out if that would save no line.
  const hidden = items.length > first + last + 1 ? items.slice(first, items.length - last) : [];
  const list = h("ul.fxi-links", items);
  if (hidden.length === 0) return list;
  const more = h(
    "button.fxi-link.fxi-more",
    {
      title: `Show all ${grouped(items.length)}`,
      onclick: () => {
        place.replaceWith(...hidden);
        hidden[0]!.querySelector<HTMLElement>("button, [tabindex]")?.focus();
      },
    },
    `… ${counted(hidden.length, "more", "more")} …`,
  );
  const place = h("li", more);
  list.replaceChildren(...items.slice(0, first), place, ...items.slice(items.length - last));
  return list;
}
