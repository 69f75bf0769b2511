/** Several nodes that are selected, other places that are like them, and what may take their place. */

import {
  type Child,
  choice,
  copyButton,
  fill,
  h,
  iconButton,
  redraw,
  textBlock,
  textButton,
} from "../../base/dom";
import { counted, grouped } from "../../base/format";
import type { Chip, OthersFound } from "../../base/wire";

/** What is asked for: the nodes, what is chosen of their pattern, and a function in their place. */
export interface OthersWish {
  nodes: string[];
  between: boolean;
  choices: Record<string, string>;
  replacement: string;
}

export interface OthersActions {
  /** Asks for the places; `show` is called with them. */
  find(wish: OthersWish): void;
  /** Asks for the names of functions; `offer` is called with them. */
  list(): void;
  add(wish: OthersWish): void;
  newPass(wish: OthersWish): void;
  close(): void;
}

const NOTHING: OthersWish = { nodes: [], between: false, choices: {}, replacement: "" };
/** A pattern of more nodes is read by nobody, and takes no message. */
const MOST_NODES = 100;
let lists = 0;

export class FindOthers {
  private readonly words = h("p", { role: "status" });
  private readonly buttons = h("div.fxi-preview-buttons.fxi-row");
  private readonly body = h("div.fxi-others");
  private readonly names = h("datalist", { id: `fxi-functions-${(lists += 1)}` });
  private readonly field = h("input", {
    ...{ type: "text", "aria-label": "Replace by", placeholder: "F.silu", list: this.names.id },
    ...{ spellcheck: "false", autocomplete: "off", "data-focus": "replacement" },
    onkeydown: (event: KeyboardEvent) => event.key !== "Escape" && event.stopPropagation(),
  });
  readonly element = h("section.fxi-bench", { "aria-label": "Find others", hidden: true }, [
    h("div.fxi-bench-head.fxi-row.fxi-wrap", this.words, this.buttons),
    this.body,
    this.names,
  ]);
  private wish = NOTHING;
  private found: OthersFound | null = null;

  constructor(private readonly actions: OthersActions) {}

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  get nodes(): string[] {
    return this.wish.nodes;
  }

  /** Selects nodes, or no longer if all of them are selected and not in a frame. */
  pick(names: string[], framed = false): void {
    const { nodes } = this.wish;
    const isThere = !framed && names.every((name) => nodes.includes(name));
    const picked = isThere
      ? nodes.filter((name) => !names.includes(name))
      : [...new Set([...nodes, ...names])];
    this.wish = { ...NOTHING, nodes: picked };
    this.found = null;
    this.element.hidden = picked.length === 0;
    this.render();
  }

  /** Looks for other places. */
  find(changes: Partial<OthersWish> = {}): void {
    this.wish = { ...this.wish, ...changes };
    if (!this.names.hasChildNodes()) this.actions.list();
    this.actions.find(this.wish);
  }

  offer(names: string[]): void {
    fill(this.names, [names.map((name) => h("option", { value: name }))]);
  }

  show(found: OthersFound): void {
    this.wish = { ...this.wish, nodes: found.nodes, between: false };
    this.found = found;
    this.element.hidden = false;
    this.render();
  }

  close(): void {
    this.wish = NOTHING;
    this.found = null;
    this.field.value = "";
    this.element.hidden = true;
  }

  private render(): void {
    const { found, wish } = this;
    const nodes = counted(wish.nodes.length, "node");
    fill(this.words, [
      h("strong", `${nodes} selected`),
      found
        ? `: ${found.count === 0 ? "no place matches" : `${counted(found.count, "place")} in all`}`
        : wish.nodes.length > MOST_NODES
          ? `; a pattern has at most ${MOST_NODES}`
          : ". Shift-click adds a box, or takes it out; Shift-drag adds those in a frame.",
    ]);
    const canFind = !found && wish.nodes.length <= MOST_NODES;
    fill(this.buttons, [
      canFind &&
        wish.nodes.length > 1 &&
        textButton("With all between", "Find others like these nodes and all on the paths between them", () =>
          this.find({ between: true }),
        ),
      canFind && h("button.fxi-button.fxi-primary", { onclick: () => this.find() }, "Find others"),
      wish.nodes.length <= MOST_NODES &&
        textButton("New pass", "Show and copy a pass for these nodes, with its test", () =>
          this.actions.newPass(this.wish),
        ),
      iconButton("close", "Close", () => this.actions.close(), "Esc"),
    ]);
    redraw(this.body, () => found && this.places(found));
  }

  private places({ pattern, source, chips, modules, replaced }: OthersFound): Child {
    return [
      h("div.fxi-others-pattern", [
        h("h3.fxi-row", ["Pattern", copyButton("Copy as Python", () => source)]),
        textBlock("Pattern", pattern),
      ]),
      h("div.fxi-others-choices", [
        chips.length > 0 && h("h3", "Numbers and inputs"),
        h("div.fxi-row.fxi-wrap", [chips.map((chip) => this.chip(chip))]),
        modules.length > 0 && h("h3", "Places in each module"),
        h("ul.fxi-places", { "aria-label": "Places in each module" }, [
          modules.map(({ name, count }) => h("li", h("code", name), h("span.fxi-muted", grouped(count)))),
        ]),
      ]),
      h(
        "form.fxi-others-replace",
        {
          onsubmit: (event: Event) => {
            event.preventDefault();
            this.find({ replacement: this.field.value });
          },
        },
        h("h3", "Replace by"),
        h("div.fxi-row.fxi-wrap", [
          this.field,
          textButton("Compare", "Compare by value in float64; nothing is applied", () => {}, {
            type: "submit",
          }),
        ]),
        replaced &&
          h("p", { class: replaced.canAdd ? "fxi-good" : "fxi-bad", role: "status" }, [replaced.words]),
        replaced?.canAdd === true &&
          textButton(
            "Add to the session",
            "Offer this pass in the session; nothing is applied",
            () => this.actions.add(this.wish),
            { class: "fxi-primary" },
          ),
      ),
    ];
  }

  private chip({ key, words, chosen, options }: Chip): HTMLElement {
    return h("label.fxi-choice", [
      h("code.fxi-cut", words),
      choice(
        (value) => this.find({ choices: { ...this.wish.choices, [key]: value } }),
        options.map((option) => h("option", { value: option, selected: option === chosen }, option)),
        { "aria-label": words, "data-focus": key },
      ),
    ]);
  }
}
