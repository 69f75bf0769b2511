/** The values of the selected node: statistics, a histogram and a map of one of its tensors at a time. */

import type { Axes, ShownValues } from "../base/protocol";
import { type Child, choice, fill, focusedIn, h, icon, nodeLink, redraw, textButton } from "../base/dom";
import { counted, grouped } from "../base/format";
import { AxesControls } from "./axes_controls";
import { ValueMap } from "./value_map";
import type { InputChoices, NodeValue, TensorInfo, TensorKind } from "../base/wire";
import { histogram, statisticsTable, titleOf } from "./statistics";

export interface ValueActions {
  /** Computes the values. */
  show(): void;
  /** Computes them on the inputs of a name. */
  on(inputs: string): void;
  /** Shows a tensor along some axes. */
  part(tensor: number, axes: Axes): void;
  jump(node: string): void;
  cancel(): void;
  canCancel(): boolean;
}

/** Axes that leave the choice to the kernel. */
const USUAL: Axes = { rows: null, columns: null, index: [] };
const OF_NODE: TensorKind[] = ["value", "original", "difference"];

export class ValueSection {
  readonly element = h("div.fxi-section.fxi-values", { tabindex: -1, hidden: true });
  private readonly map = new ValueMap((index) => this.lookAt(index));
  private readonly axes: AxesControls;
  private readonly numbers = h("div.fxi-values-numbers");
  private readonly choice = h("div.fxi-values-choice.fxi-row.fxi-wrap");
  private readonly problem = h("p.fxi-values-problem.fxi-bad", { role: "status" });
  private shown: ShownValues | null = null;
  private value: NodeValue | null = null;

  constructor(private readonly actions: ValueActions) {
    this.axes = new AxesControls((axes) => actions.part(this.shown!.part!.tensor, axes));
  }

  show(shown: ShownValues): void {
    if (shown === this.shown) return;
    this.shown = shown;
    const isWritten = shown.isFixed && shown.text !== "";
    this.element.hidden = shown.state === "absent" && !isWritten;
    if (shown.state === "ready" && shown.value === this.value) return this.showPart();
    this.value = shown.state === "ready" ? shown.value : null;
    this.map.forget();
    const hadFocus = focusedIn(this.element) !== null;
    fill(this.element, this.head(shown), this.value && this.body(this.value));
    if (this.value) this.showPart();
    // What had the focus is gone, and JupyterLab would take it.
    if (hadFocus) this.element.focus({ preventScroll: true });
  }

  /** Says how it stands, with what can be pressed. */
  private head({ state, text, isFixed }: ShownValues): Child[] {
    const isPending = state === "pending";
    const press =
      !isFixed &&
      state !== "ready" &&
      textButton(
        isPending ? [h("span.fxi-spinner", { "aria-hidden": "true" }), "Computing …"] : "Show values",
        "Run the model up to this node, on the inputs of the session",
        () => this.actions.show(),
        { disabled: isPending },
      );
    const cancel =
      isPending && this.actions.canCancel() && textButton("Cancel", "", () => this.actions.cancel());
    const words = state !== "ready" && text;
    const kind = state === "failed" ? "fxi-values-problem fxi-bad" : "fxi-muted";
    return [
      h("div.fxi-values-head.fxi-row.fxi-wrap", h("h3.fxi-grow.fxi-small", "Values"), press, cancel),
      words && h("p", { class: kind, role: "status" }, state === "failed" && icon("alert"), words),
    ];
  }

  private body(value: NodeValue): HTMLElement {
    const { notes, tensors, total, at, inputs } = value;
    const isEmpty = tensors.length === 0;
    return h("div.fxi-values-body", [
      at && h("p.fxi-muted", `At the stage “${at}”, which alone has this node.`),
      inputs && inputChoices(inputs, (name) => this.actions.on(name)),
      this.choice,
      this.problem,
      !isEmpty && this.numbers,
      !isEmpty && h("div.fxi-values-map", this.axes.element, this.map.element),
      this.origins(value),
      notes.map((note) => h("p.fxi-muted", note)),
      total > tensors.length &&
        h("p.fxi-muted", `${grouped(total - tensors.length)} more tensors are not shown.`),
    ]);
  }

  /** Says where NaN and infinity come from, if there are any. */
  private origins({ firstNan, firstInf }: NodeValue): Child[] {
    const origin = (what: string, node: string | null): Child =>
      node !== null &&
      h("p.fxi-values-origin", [`${what} first appears in `, nodeLink(node, () => this.actions.jump(node))]);
    return [origin("NaN", firstNan), origin("Infinity", firstInf)];
  }

  private showPart(): void {
    const { part, text, isFixed } = this.shown!;
    const value = this.value!;
    this.problem.textContent = text;
    this.problem.hidden = !text;
    const tensor = value.tensors[part?.tensor ?? 0];
    if (tensor) this.showChoice(value, tensor);
    else fill(this.choice);
    if (!part || !tensor) return void fill(this.numbers);
    fill(this.numbers, [
      statisticsTable(part, value, isFixed ? null : (place, index) => this.goTo(place, index)),
      histogram(part.histogram),
    ]);
    this.axes.show(tensor.shape, part.map, isFixed);
    this.map.show(part.map, tensor, titleOf(tensor, value));
  }

  private lookAt(index: number[]): void {
    const { tensor, map } = this.shown!.part!;
    this.actions.part(tensor, { rows: map.rows, columns: map.columns, index });
  }

  private goTo(place: number, index: number[]): void {
    const { part } = this.shown!;
    this.map.markNext(index);
    const { rows, columns } = part!.map;
    const isSame = this.value!.tensors[place]!.shape.length === part!.map.index.length;
    this.actions.part(place, isSame ? { rows, columns, index } : { ...USUAL, index });
  }

  /** Offers the other tensors of the node, and what each is compared with. */
  private showChoice(value: NodeValue, chosen: TensorInfo): void {
    const { tensors } = value;
    const isOfNode = (tensor: TensorInfo): boolean => OF_NODE.includes(tensor.kind);
    const isSame = (tensor: TensorInfo): boolean =>
      isOfNode(tensor) === isOfNode(chosen) && tensor.name === chosen.name;
    const firsts = tensors.flatMap((tensor, place) =>
      tensor.kind === "value" || !isOfNode(tensor) ? [{ tensor, place }] : [],
    );
    const select =
      firsts.length > 1 &&
      choice(
        (place) => this.actions.part(Number(place), USUAL),
        firsts.map(({ tensor, place }) =>
          h("option", { value: place, selected: isSame(tensor) }, nameOf(tensor)),
        ),
        { "aria-label": "Tensor", "data-focus": "select" },
      );
    const kinds = tensors.flatMap((tensor, place) => (isSame(tensor) ? [{ tensor, place }] : []));
    const buttons =
      kinds.length > 1 &&
      h(
        "div.fxi-ways.fxi-values-kinds",
        { role: "group", "aria-label": "Shown in the histogram and the map" },
        [
          kinds.map(({ tensor, place }) =>
            h(
              "button.fxi-way.fxi-cut",
              {
                ...{ "data-focus": tensor.kind },
                "aria-pressed": tensor === chosen,
                title: titleOf(tensor, value),
                onclick: () => this.actions.part(place, this.axesFor(tensor)),
              },
              titleOf(tensor, value),
            ),
          ),
        ],
      );
    const shape = h("code.fxi-muted", `(${chosen.shape.join(", ")}) ${chosen.dtype}${sizeOf(chosen)}`);
    redraw(this.choice, () => [select, buttons, shape]);
  }

  /** What is compared is shown along the same axes and at the same index, if it has them. */
  private axesFor({ shape }: TensorInfo): Axes {
    const { part } = this.shown!;
    if (!part) return USUAL;
    const { rows, columns, index } = part.map;
    const before = this.value!.tensors[part.tensor]!.shape;
    const isSame = shape.length === before.length && shape.every((size, d) => size === before[d]);
    return isSame ? { rows, columns, index: index.map((place) => place ?? 0) } : USUAL;
  }
}

function nameOf({ kind, name }: TensorInfo): string {
  return kind === "weight" ? name : name === "output" ? "Value" : `Value: ${name}`;
}

function sizeOf({ shape }: TensorInfo): string {
  const elements = shape.reduce((product, size) => product * size, 1);
  return shape.length > 1 ? `, ${counted(elements, "element")}` : "";
}

const BATCH = "batch ";

/** Returns the fields, or null where there is nothing to choose. */
export function inputChoices(inputs: InputChoices, choose: (name: string) => void): HTMLElement | null {
  const { chosen, choices, batches } = inputs;
  if (choices.length < 2 && batches < 1) return null;
  const isListed = choices.some(({ name }) => name === chosen);
  const number = chosen.startsWith(BATCH) ? chosen.slice(BATCH.length) : "";
  const listed = isListed ? choices : [...choices, { name: chosen, title: chosen }];
  return h("div.fxi-values-inputs.fxi-row.fxi-wrap", [
    h("label.fxi-row.fxi-muted", [
      "On ",
      choice(
        choose,
        listed.map(({ name, title }) => h("option", { value: name, selected: name === chosen }, title)),
        { "data-focus": "inputs" },
      ),
    ]),
    batches > 0 &&
      h("label.fxi-row.fxi-muted", { title: `A number from 0 to ${grouped(batches - 1)}` }, [
        "or batch ",
        h("input", {
          ...{ type: "number", min: 0, max: batches - 1, step: 1, value: number, "data-focus": "batch" },
          onchange: (event: Event) => {
            const field = event.target as HTMLInputElement;
            if (field.value && field.checkValidity()) choose(BATCH + Number(field.value));
            else field.value = number;
          },
        }),
      ]),
  ]);
}
