/** What is selected: the kernel says what it is, and the page knows the way back. */

import type { Model } from "../base/model";
import type { Box, Details, ToViewer } from "../base/protocol";
import type { Panes } from "../graph/panes";

const LONGEST_TRAIL = 100;

interface Place {
  kind: Details["kind"];
  name: string;
  before: boolean;
}

export class Selection {
  /** The box that was selected here, until the kernel has said what it is. */
  private wanted: { id: string; before: boolean } | null = null;
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

  /** Whether it is in the graph beside. */
  get isBefore(): boolean {
    return this.details?.before === true;
  }

  selectBox(box: Box, id: string, before: boolean): void {
    this.wanted = { id, before };
    if (box.node) this.send({ type: "select-node", name: box.node, show: false, before });
    else this.send({ type: "select-group", path: box.path, before });
  }

  selectGroup(path: string, before = false): void {
    this.wanted = null;
    this.send({ type: "select-group", path, before });
  }

  /** Brings a node into sight; one that may not be in what is shown, at a stage that has it. */
  jump(name: string, before = false, stage: number | null = null): void {
    this.wanted = null;
    this.send(
      stage === null ? { type: "select-node", name, show: true, before } : { type: "show-node", name, stage },
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
    else if (place.kind === "node") this.jump(place.name, place.before);
    else this.selectGroup(place.name, place.before);
  }

  /** Waits no longer for the box that was selected here. */
  settle(): void {
    this.wanted = null;
  }

  /** Shows what is selected, unless something else was selected here meanwhile. */
  show(): void {
    const { details } = this;
    if (!details) return;
    const isOther = details.box !== this.wanted?.id || (details.before ?? false) !== this.wanted?.before;
    if (this.wanted !== null && isOther) return;
    this.wanted = null;
    this.panes().setSelected(details);
  }

  /** Notes what is selected, so that the way back is known. */
  note({ kind, name, path, before = false }: Details): void {
    const place = { kind, name: name ?? path ?? "", before };
    const last = this.trail.at(-1);
    if (kind === "model") return;
    if (last && last.kind === kind && last.name === place.name && last.before === before) return;
    this.trail.push(place);
    if (this.trail.length > LONGEST_TRAIL) this.trail.shift();
  }
}
