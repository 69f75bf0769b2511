/** The graphs with what is said of them: overlay, legend, the pass that stands out, what is found. */

import { h } from "../base/dom";
import type { Model, Overlay, Picture } from "../base/protocol";
import { isPicture } from "../base/read_message";
import type { GraphView } from "../graph/graph_view";
import { Legend } from "../graph/overlays/legend";
import { paintTogether } from "../graph/overlays/overlay";
import { Panes, type PaneActions } from "../graph/panes";
import { Toolbar, type Tool } from "../graph/toolbar";
import type { Arrangement, Pass } from "../base/wire";
import { type Drawing, savedPicture, type Side } from "../graph/saved_picture";

export class GraphArea {
  readonly panes: Panes;
  readonly toolbar: Toolbar;
  readonly legend: Legend;
  private readonly percent = h("span.fxi-percent.fxi-muted");
  private picture: Picture | null = null;
  private passes: Pass[] = [];
  private chosen: string | null = null;

  /**
   * `showOverlay` is called with the overlay that somebody chooses, `drawLines` with
   * what lines are to be drawn by; `tools` come last in the toolbar.
   */
  constructor(
    private readonly model: Model,
    actions: Omit<PaneActions, "moved">,
    showOverlay: (name: string) => void,
    drawLines: (lines: Arrangement["lines"]) => void,
    tools: Tool[],
  ) {
    this.panes = new Panes({ ...actions, moved: () => this.showPercent() });
    this.legend = new Legend(showOverlay, drawLines, () => this.toolbar.refresh());
    this.toolbar = new Toolbar(
      this.legend.choice,
      {
        ...{ icon: "legend", label: "Legend", isNamed: true },
        press: () => this.legend.setOpen(!this.legend.isOpen),
        isOn: () => this.legend.isOpen,
      },
      this.graph.crumbs,
      { icon: "minus", label: "Zoom out", key: "-", press: () => this.panes.active.zoomOut() },
      this.percent,
      { icon: "plus", label: "Zoom in", key: "+", press: () => this.panes.active.zoomIn() },
      { icon: "fit", label: "Show all of the graph", key: "f", press: () => this.panes.active.fit() },
      ...tools,
    );
  }

  get graph(): GraphView {
    return this.panes.graph;
  }

  showPicture(picture: Picture): void {
    if (!isPicture(picture)) return;
    const isSame = picture.svg === this.picture?.svg && picture.boxes === this.picture.boxes;
    this.picture = picture;
    if (isSame) return this.emphasize();
    this.graph.show(picture);
    this.repaint();
    this.emphasize();
    this.showLit();
  }

  showBeside(): void {
    this.panes.showBeside(this.beside);
    this.showFound();
    this.repaint();
  }

  showFound(): void {
    this.panes.setFound(this.model.get("found"));
  }

  /** Lights up the boxes of nodes that have a part in something. */
  showLit(): void {
    this.graph.highlights.setRoles(this.model.get("lit")?.boxes ?? {});
  }

  showOverlays(): void {
    const overlays = this.model.get("overlays");
    if (!Array.isArray(overlays?.offered)) return;
    this.legend.offer(overlays, this.model.get("arrangement").lines);
    this.repaint();
  }

  /** Shows which overlay there is, whatever was chosen. */
  settle(): void {
    this.legend.settle();
  }

  setPasses(passes: Pass[]): void {
    this.passes = passes;
    this.graph.highlights.passNames = passes.map((pass) => pass.name);
    this.repaint();
  }

  /** Lets the nodes of a pass stand out, those that it changed or would change. */
  choose(signature: string | null): void {
    this.chosen = signature;
    this.emphasize();
  }

  /** Brings the nodes of a pass into the window; false if they are all in closed groups. */
  focusPass(signature: string): boolean {
    const number = this.picture?.signatures.indexOf(signature) ?? -1;
    if (!this.picture || number < 0) return true;
    const lit = Object.entries(this.picture.boxes).filter(
      ([, box]) => box.marks.includes(number) && box.kind !== "cluster",
    );
    if (lit.length > 0 && lit.every(([, box]) => box.openable)) return false;
    const would = Object.keys(this.picture.matches[signature] ?? {});
    this.graph.camera.focus(lit.length > 0 ? lit.map(([id]) => id) : would, true);
    return true;
  }

  /** Returns what is shown as it is saved: the graph, and those beside it on its left. */
  drawing(): Drawing | null {
    if (!this.picture) return null;
    const { paints, overlay, beside } = this.model.get("overlays");
    const { names } = this.panes;
    const sides: Side[] = [
      ...this.beside.map((picture, i) => ({ picture, overlay: beside[i] ?? null })),
      { picture: this.picture, overlay },
    ].map((side, i) => ({ ...side, name: names[i] ?? "" }));
    return savedPicture(sides, paints);
  }

  private showPercent(): void {
    this.percent.textContent = `${Math.round(this.panes.active.camera.viewport.scale * 100)} %`;
  }

  private get beside(): Picture[] {
    return this.model.get("beside") ?? [];
  }

  private emphasize(): void {
    const { chosen, picture } = this;
    const number = chosen === null ? -1 : (picture?.signatures.indexOf(chosen) ?? -1);
    const on = this.passes.find((pass) => pass.signature === chosen)?.on ?? false;
    const matches = !on && chosen ? (picture?.matches[chosen] ?? {}) : {};
    this.graph.highlights.setEmphasis({ mark: number < 0 ? null : number, matches });
  }

  private repaint(): void {
    if (!this.picture) return;
    const pictures = [this.picture, ...this.beside];
    const { overlay, beside } = this.model.get("overlays");
    const painted = paintTogether(
      (overlay ? [overlay, ...beside] : []).flatMap((one, i): [Overlay, Picture][] =>
        pictures[i] ? [[one, pictures[i]]] : [],
      ),
    );
    this.panes.setPaint(painted);
    this.legend.show(pictures, this.passes, painted);
  }
}
