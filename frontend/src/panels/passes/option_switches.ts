/** The options that a compiler's passes read, folded below the passes: a switch for each. */

import { foldable, h, icon } from "../../base/dom";
import type { ToSession } from "../../base/protocol";
import type { Option, Passes } from "../../base/wire";

export class OptionSwitches {
  private readonly opened = new Set<string>();
  private pending: string | null = null;

  constructor(private readonly send: (message: ToSession) => void) {}

  /** Called when the session has answered: what was pending is so, or is not. */
  settle(): void {
    this.pending = null;
  }

  of(state: Passes, busy: boolean): HTMLElement | null {
    const { options = [] } = state;
    if (options.length === 0) return null;
    const changed = options.filter(({ isChanged }) => isChanged).length;
    const on = options.filter(({ on }) => on).length;
    const words = `${on} of ${options.length} options of the compiler on${changed > 0 ? `, ${changed} changed` : ""}`;
    return h(
      "details.fxi-reasons.fxi-options",
      { ...foldable(this.opened, "options") },
      h("summary", { "data-focus": "options" }, icon("chevron"), h("span", words)),
      h("ul.fxi-card-list", { "aria-label": "Options of the compiler" }, [
        options.map((option) => this.card(option, busy, state.fixed === true)),
      ]),
    );
  }

  private card({ name, on, ...option }: Option, busy: boolean, fixed: boolean): HTMLElement {
    const isPending = name === this.pending;
    return h("li", { class: `fxi-card fxi-option${on ? " fxi-on" : ""}` }, [
      h("div.fxi-card-head", [
        h("code.fxi-card-name.fxi-grow", name),
        h("button", {
          role: "switch",
          class: `fxi-switch${isPending ? " fxi-pending" : ""}`,
          "aria-checked": String(isPending ? !on : on),
          "aria-label": name,
          "data-focus": `option-${name}`,
          title:
            option.fixed ||
            (fixed
              ? `${name} is ${on ? "on" : "off"}`
              : `Compile again with ${name}=${on ? "False" : "True"}`),
          disabled: busy || fixed || option.fixed !== "",
          onclick: (event: Event) => {
            this.pending = name;
            (event.currentTarget as Element).classList.add("fxi-pending");
            this.send({ type: "set-option", name, on: !on });
          },
        }),
      ]),
      option.description && h("p.fxi-card-text", option.description),
      h("p.fxi-card-text", [
        `${option.phases.replaceAll("_", "-")}${option.isChanged ? ": changed" : ""}${option.fixed ? `. ${option.fixed}` : ""}`,
      ]),
    ]);
  }
}
