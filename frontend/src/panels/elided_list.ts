/** A list of which the middle is shown when somebody asks for it. */

import { h } from "../base/dom";
import { counted, grouped } from "../base/format";
import { endsOf, type Ends } from "../base/names";

/** Returns a list of items, and a button in the place of those in the middle if they are many. */
export function elidedList(items: HTMLElement[], ends: Ends): HTMLElement {
  const { head, hidden, tail } = endsOf(items, ends);
  const list = h("ul.fxi-links", head);
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
  list.append(place, ...tail);
  return list;
}
