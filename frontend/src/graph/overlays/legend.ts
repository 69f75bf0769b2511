/** What the colours of the graph mean: only those that the picture has; and the choice of other colours. */

import { fill, h } from "../../base/dom";
import { markColour, markSign } from "../live_picture";
import { NUMBER_OF_KINDS, type Painted } from "./overlay";
import type { Overlays, Picture } from "../../base/protocol";
import type { Arrangement, Pass } from "../../base/wire";
import { capitalized } from "../../base/format";

const LINES: [by: Arrangement["lines"], words: string][] = [
  ["alike", "All alike"],
  ["dtype", "Coloured by dtype"],
  ["bytes", "Thicker for more bytes"],
];

const KINDS: [className: string, words: string][] = [
  ["fx-call_module", "Module"],
  ["fx-call_function", "Function or method"],
  ["fx-get_attr", "Parameter or buffer"],
  ["fx-group", "Group (can be opened)"],
  ["fx-repeat", "Identical blocks"],
  ["fx-placeholder", "Input or output"],
  ["fx-chip", "Made or read elsewhere"],
  ["fx-bookkeeping", "Sizes, masks, checks"],
];

export class Legend {
  private readonly list = h("ul.fxi-wrap");
  /** Stands above the graph while it is open. */
  readonly element = h(
    "div.fxi-legend.fxi-strip",
    { role: "group", "aria-label": "Legend", hidden: true },
    this.list,
  );
  /** What the graph is coloured by. */
  readonly choice: HTMLSelectElement;
  /** The name of the overlay that is shown, and what lines are drawn by: other colours open it, those of kinds close it. */
  private shown = "";
  private lines: Arrangement["lines"] = "alike";

  /**
   * `choose` is called with the name of an overlay, `draw` with what lines are to be
   * drawn by, and `changed` when it was opened or closed.
   */
  constructor(
    choose: (overlay: string) => void,
    draw: (lines: Arrangement["lines"]) => void,
    private readonly changed: () => void,
  ) {
    this.choice = h("select.fxi-colours", {
      "aria-label": "Colour by",
      title: "Colour the graph by",
      onchange: () => {
        const { choice, shown } = this;
        const { lines } = choice.selectedOptions[0]!.dataset;
        if (!lines) return choose(choice.value);
        choice.value = shown;
        draw(lines as Arrangement["lines"]);
      },
    });
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  setOpen(isOpen: boolean): void {
    this.element.hidden = !isOpen;
    this.changed();
  }

  /** Shows what the graph, and its lines, can be coloured by. */
  offer({ offered, overlay }: Overlays, lines: Arrangement["lines"]): void {
    const shown = overlay?.name ?? "";
    if (shown !== this.shown || lines !== this.lines) this.setOpen(shown !== "" || lines !== "alike");
    [this.shown, this.lines] = [shown, lines];
    fill(this.choice, [
      h("option", { value: "" }, "Colour by kind"),
      offered.map(({ name, title }) => h("option", { value: name, selected: name === this.shown }, title)),
      h("optgroup", { label: "Lines" }, [
        LINES.map(([by, words]) => h("option", { "data-lines": by }, by === lines ? `${words} ✓` : words)),
      ]),
    ]);
  }

  /** Goes back to the overlay that is shown, if the one that was chosen did not come. */
  settle(): void {
    this.choice.value = this.shown;
  }

  /** Explains pictures, and how they are painted. */
  show(pictures: Picture[], passes: Pass[], painted: Painted[]): void {
    const [picture] = pictures;
    if (!picture) return;
    const has = (name: string): boolean =>
      pictures.some(({ svg }) => new RegExp(`class="[^"]*\\b${name}\\b(?!-)`).test(svg));
    const present = KINDS.filter(([name]) => (painted.length === 0 || name === "fx-chip") && has(name));
    const marks = new Set(pictures.flatMap(({ boxes }) => Object.values(boxes)).flatMap((box) => box.marks));
    const words = (number: number): string =>
      picture.compared
        ? `${picture.preview ? "would be " : ""}${picture.signatures[number] ?? ""}`
        : `Changed by ${passes[number]?.name ?? "a pass"}`;
    fill(this.list, [
      painted[0] &&
        this.scale(
          painted[0],
          painted.every(({ boxes }) => boxes.size === 0),
        ),
      picture.lines && [h("li.fxi-legend-title", picture.lines.title), swatches(picture.lines.kinds)],
      present.map(([name, text]) => h("li.fxi-row", h("span", { class: `fxi-swatch ${name}` }), text)),
      picture.signatures.map((_, i) => {
        if (!marks.has(i)) return null;
        const style = `--mark: ${markColour(i, picture)}`;
        return h("li.fxi-row", [
          h("span.fxi-number", { style }, markSign(i, picture)),
          capitalized(words(i)),
        ]);
      }),
    ]);
  }

  private scale({ title, ends, kinds, isAllZero }: Painted, isEmpty: boolean): HTMLElement[] {
    if (isEmpty) return [h("li", `${title}: no box has a value.`)];
    if (isAllZero) return [h("li", `${title}: every value is zero.`)];
    const heading = h("li.fxi-legend-title", title);
    if (ends)
      return [
        heading,
        h("li.fxi-scale.fxi-row", [
          h("span", ends[0]),
          h("span.fxi-scale-bar", { role: "img", "aria-label": "to" }),
          h("span", ends[1]),
        ]),
      ];
    return [heading, ...swatches(kinds)];
  }
}

function swatches(kinds: string[]): HTMLElement[] {
  return kinds
    .slice(0, NUMBER_OF_KINDS)
    .map((kind, i) =>
      h("li.fxi-row", [
        h("span", { class: `fxi-swatch fxi-kind-${i}` }),
        i === NUMBER_OF_KINDS - 1 && kinds.length > NUMBER_OF_KINDS ? "others" : kind,
      ]),
    );
}
