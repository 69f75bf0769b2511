/** What can be added to the passes: a list, with a field for each argument. */

import { fill, h, iconButton } from "../../base/dom";
import type { ToSession } from "../../base/protocol";
import type { Offer } from "../../base/wire";

export interface OfferActions {
  /** Asks for what can be added; `show` is called with it. */
  list(): void;
  send(message: ToSession): void;
}

const NOTHING =
  "No passes to add: all are in the list. Subclasses of fxlab.Transformation defined in a cell, and " +
  "functions wrapped by fxlab.from_callable, are offered here too.";

export class PassOffers {
  readonly element = h("section.fxi-offers", { "aria-label": "Add a pass", hidden: true });
  readonly button: HTMLButtonElement;
  private readonly list = h("ul");
  private offers: Offer[] | null = null;

  constructor(private readonly actions: OfferActions) {
    this.button = iconButton("plus", "Add a pass", () => this.toggle(), "", {
      ...{ class: "fxi-needs-kernel", "aria-expanded": false },
    });
    const head = h("header.fxi-row", [
      h("h3", "Add a pass"),
      h("span.fxi-space"),
      iconButton("close", "Close", () => this.close()),
    ]);
    this.element.append(head, this.list);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
  }

  show(offers: Offer[]): void {
    // Not while somebody types: the fields would be emptied.
    if (JSON.stringify(offers) === JSON.stringify(this.offers)) return;
    this.offers = offers;
    fill(this.list, [
      offers.length > 0 ? offers.map((offer) => this.offer(offer)) : h("li.fxi-empty", NOTHING),
    ]);
  }

  close(): void {
    if (this.element.hidden) return;
    this.setOpen(false);
    this.button.focus({ preventScroll: true });
  }

  private toggle(): void {
    this.setOpen(Boolean(this.element.hidden));
    if (this.element.hidden) return;
    this.offers = null;
    fill(this.list, h("li.fxi-empty", "Looking for passes …"));
    this.actions.list();
  }

  private setOpen(open: boolean): void {
    this.element.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
  }

  private offer({ key, title, description, parameters }: Offer): HTMLElement {
    const fields = parameters.map(({ name, required, default: value, isBool }) => {
      const attributes = { "aria-label": name, name, required, "data-default": value };
      const field = isBool
        ? h("select", attributes, [
            ["True", "False"].map((word) => h("option", { value: word, selected: word === value }, word)),
          ])
        : h("input", {
            ...attributes,
            type: "text",
            value,
            placeholder: required ? "needed" : "",
            spellcheck: "false",
            autocomplete: "off",
          });
      field.addEventListener(
        "keydown",
        (event) => (event as KeyboardEvent).key !== "Escape" && event.stopPropagation(),
      );
      return field;
    });
    const form = h(
      "form",
      {
        onsubmit: (event: Event) => {
          event.preventDefault();
          // What is left as it was is left to the class.
          const given = fields.filter((field) => field.required || field.value !== field.dataset["default"]);
          const values = Object.fromEntries(given.map((field) => [field.name, field.value]));
          this.actions.send({ type: "add", key, arguments: values });
        },
      },
      h("div.fxi-offer-head.fxi-row", [
        h("strong.fxi-grow", title),
        h("button.fxi-button", { type: "submit", "aria-label": `Add ${title}` }, "Add"),
      ]),
      description && h("p.fxi-card-text", description),
      fields.length > 0 &&
        h("div.fxi-offer-fields", [fields.map((field) => h("label", h("code", field.name), field))]),
    );
    return h("li", form);
  }
}
