/** Which inputs the values are of: the session's, batches of its data, or others that were made of them. */

import { h } from "../base/dom";
import type { InputChoices } from "../base/wire";

const BATCH = "batch ";

/** Returns the fields, or null where there is nothing to choose. */
export function inputChoices(inputs: InputChoices, choose: (name: string) => void): HTMLElement | null {
  const { chosen, choices, batches } = inputs;
  if (choices.length < 2 && batches < 1) return null;
  const isListed = choices.some(({ name }) => name === chosen);
  const number = chosen.startsWith(BATCH) ? chosen.slice(BATCH.length) : "";
  const listed = isListed ? choices : [...choices, { name: chosen, title: chosen }];
  return h(
    "div",
    { class: "fxi-values-inputs fxi-row fxi-wrap" },
    h(
      "label",
      {},
      "On ",
      h(
        "select",
        {
          "data-kind": "inputs",
          onchange: (event: Event) => choose((event.target as HTMLSelectElement).value),
        },
        listed.map(({ name, title }) => h("option", { value: name, selected: name === chosen }, title)),
      ),
    ),
    batches > 0 &&
      h(
        "label",
        { title: `A number from 0 to ${(batches - 1).toLocaleString("en-US")}` },
        "or batch ",
        h("input", {
          ...{ type: "number", min: 0, max: batches - 1, step: 1, value: number, "data-kind": "batch" },
          onchange: (event: Event) => {
            const field = event.target as HTMLInputElement;
            if (field.value && field.checkValidity()) choose(BATCH + Number(field.value));
            else field.value = number;
          },
        }),
      ),
  );
}
