/** The values of the selected node: computed by the kernel when somebody asks, or written into a report. */

import { NO_VALUES, type Axes, type ShownValues } from "../../base/protocol";
import { lastOf } from "../../base/dom";
import { objectWith } from "../../base/read_message";
import type { Kernel } from "../kernels/kernel";
import type { NodeValue, ValuePart } from "../../base/wire";

/** A node of a graph, and the number of the stage that the graph is compared with. */
export interface Place {
  graph: number;
  name: string;
  before: number | null;
}

/** A part of a tensor. */
interface Wish extends Axes {
  place: Place;
  inputs: string;
  tensor: number;
}

const CANCELLED = "Cancelled.";
const NO_ANSWER = "The kernel did not answer.";

export class NodeValues {
  private place: Place | null = null;
  private shown = NO_VALUES;
  /** The name of the inputs, which stays while the session does. */
  private inputs = "";
  private readonly ask = lastOf((wish: Wish) => this.read(wish));

  constructor(
    private readonly kernel: Kernel,
    private readonly show: (shown: ShownValues) => void,
  ) {}

  /** Forgets everything: the session has changed. */
  clear(): void {
    this.place = null;
    this.inputs = "";
  }

  /** Turns to another node, whose values nobody has asked for; null turns to none. */
  select(place: Place | null): void {
    if (place && this.place && isSame(place, this.place)) return;
    this.place = place;
    if (!place) return this.set(NO_VALUES);
    if (!this.kernel.isFixed) return this.set({ ...NO_VALUES, state: "none" });
    const { values } = this.kernel;
    const written = values?.graphs.includes(place.graph) ? values.nodes[place.name] : undefined;
    if (!written) return this.set({ ...NO_VALUES, text: values?.text ?? "", isFixed: true });
    const { value, parts } = written;
    this.set({ state: "ready", text: "", value, part: parts[0] ?? null, isFixed: true });
  }

  /** Asks for the values, perhaps on other inputs, and shows what comes of it. */
  async look(inputs = this.inputs): Promise<void> {
    const { place } = this;
    if (!place || this.kernel.isFixed || this.shown.state === "pending") return;
    this.inputs = inputs;
    const asked = this.kernel.ask({ type: "value", ...place, inputs });
    this.set({ ...NO_VALUES, state: "pending" });
    const answer = await asked.then(
      ({ value }) => objectWith(value, "state"),
      () => null,
    );
    if (place !== this.place) return;
    const [state, text] = [answer?.["state"], String(answer?.["text"] ?? "")];
    if (state === "ready") {
      const part = partOf(answer);
      this.set({
        ...NO_VALUES,
        state,
        text: part.text,
        value: answer!["value"] as NodeValue,
        part: part.part,
      });
      return;
    }
    // The button asks for those of the session again.
    this.inputs = "";
    if (state === "failed") this.set({ ...NO_VALUES, state, text });
    else this.set({ ...NO_VALUES, state: "none", text: state === "cancelled" ? CANCELLED : NO_ANSWER });
  }

  /** Asks for one of the tensors along some axes; of several requests in a row, the last is answered. */
  async choose(tensor: number, axes: Axes): Promise<void> {
    const { place, shown } = this;
    if (!place || shown.state !== "ready") return;
    if (shown.isFixed) {
      const part = this.kernel.values?.nodes[place.name]?.parts.find((known) => known.tensor === tensor);
      if (part) this.set({ ...shown, part });
      return;
    }
    const { inputs } = this;
    return this.ask({ place, inputs, tensor, ...axes });
  }

  private async read({ place, ...wish }: Wish): Promise<void> {
    const isOver = (): boolean =>
      place !== this.place || wish.inputs !== this.inputs || this.shown.state !== "ready";
    if (isOver()) return;
    const { value } = await this.kernel.ask({ type: "value-part", ...place, ...wish });
    if (isOver()) return;
    const { part, text } = partOf(value);
    this.set({ ...this.shown, text, part: part ?? this.shown.part });
  }

  private set(shown: ShownValues): void {
    this.shown = shown;
    this.show(shown);
  }
}

/** Returns a part that the kernel has answered with, or why there is none. */
function partOf(answer: unknown): { part: ValuePart | null; text: string } {
  const known = objectWith(answer, "state");
  const part = objectWith(known?.["part"], "tensor", "statistics", "histogram", "map");
  return { part: part as ValuePart | null, text: String(known?.["text"] ?? "") };
}

function isSame(a: Place, b: Place): boolean {
  return a.graph === b.graph && a.name === b.name && a.before === b.before;
}
