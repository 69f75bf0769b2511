/** What is selected: the kernel says what it is, and the page knows the way back. */

import type { Box, Details, Model, ToViewer } from "../base/protocol";
import type { Panes } from "../graph/panes";

const LONGEST_TRAIL = 100;

interface Place {
  kind: Details["kind"];
  name: string;
  pane: number;
}

export class Selection {
  /** The box that was selected here, until the kernel has said what it is. */
  private wanted: { id: string; pane: number } | null = null;
  /** What was selected, the present selection last. */
  private readonly trail: Place[] = [];

  constructor(
    private readonly model: Model,
    private readonly send: (message: ToViewer) => void,
    private readonly panes: () => Panes,
  ) {}

  get details(): Details | null {
    const details = this.model.get("details");
    return details?.kind ? details : null;
  }

  /** The number of the pane that it is in. */
  get pane(): number {
    return this.details?.pane ?? 0;
  }

  selectBox(box: Box, id: string, pane: number): void {
    this.wanted = { id, pane };
    if (box.node) this.send({ type: "select-node", name: box.node, show: false, pane });
    else this.send({ type: "select-group", path: box.path, pane });
  }

  selectGroup(path: string, pane = 0): void {
    this.wanted = null;
    this.send({ type: "select-group", path, pane });
  }

  /** Brings a node into sight; one that may not be in what is shown, at a stage that has it. */
  jump(name: string, pane = 0, stage?: number | null): void {
    this.wanted = null;
    this.send(
      stage == null ? { type: "select-node", name, show: true, pane } : { type: "show-node", name, stage },
    );
  }

  clear(): void {
    this.wanted = null;
    this.panes().setSelected({ box: null });
    this.send({ type: "clear-selection" });
  }

  goBack(): void {
    if (this.details?.kind !== "model") this.trail.pop();
    const place = this.trail.pop();
    if (!place) this.clear();
    else if (place.kind === "node") this.jump(place.name, place.pane);
    else this.selectGroup(place.name, place.pane);
  }

  /** Waits no longer for the box that was selected here. */
  settle(): void {
    this.wanted = null;
  }

  /** Shows what is selected, unless something else was selected here meanwhile. */
  show(): void {
    const { details } = this;
    if (!details) return;
    const isOther = details.box !== this.wanted?.id || this.pane !== this.wanted?.pane;
    if (this.wanted !== null && isOther) return;
    this.wanted = null;
    this.panes().setSelected(details);
  }

  /** Notes what is selected, so that the way back is known. */
  note({ kind, name, path, pane = 0 }: Details): void {
    const place = { kind, name: name ?? path ?? "", pane };
    const last = this.trail.at(-1);
    if (kind === "model") return;
    if (last && last.kind === kind && last.name === place.name && last.pane === pane) return;
    this.trail.push(place);
    if (this.trail.length > LONGEST_TRAIL) this.trail.shift();
  }
}
