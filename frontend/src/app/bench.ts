/** What is looked at closely above the graph: one of several panels, which lights its nodes up. */

import { h } from "../base/dom";
import type { Asking, Box, Comparison, Details, LookedAt, Model, ToViewer } from "../base/protocol";
import { FindOthers } from "../panels/bench/find_others";
import { NearMissBar, PythonText } from "../panels/bench/near_miss_bar";
import { RewriteBar } from "../panels/bench/rewrite_bar";
import type { OthersFound, Pass, Role, Selected, ShownNearMiss, ShownRewrite } from "../base/wire";

export interface BenchActions {
  send(message: ToViewer): void;
  request(): string;
  limit(signature: string, node: string, again: boolean): void;
  /** Shows the line of a node. */
  showCode(node: string): void;
}

export class Bench {
  readonly element = h("div.fxi-bench-slot.fxi-scroll");
  private readonly waiting = new Map<string, (value: unknown) => void>();
  private readonly rewrites: RewriteBar;
  private readonly miss: NearMissBar;
  private readonly others: FindOthers;
  private readonly python = new PythonText();
  /** How the stages were looked at before. */
  private before: LookedAt | null = null;
  /** Whether nodes are selected, or about to be. */
  private isPicking = false;
  /** The passes that are on. */
  private stack = "";

  constructor(
    private readonly model: Model,
    private readonly actions: BenchActions,
  ) {
    const asTest = (signature: string, node: string): void =>
      this.write("Test", { type: "as-test", signature, node });
    this.rewrites = new RewriteBar({
      asTest,
      ask: (signature, number) =>
        this.ask<ShownRewrite>({ type: "rewrite", signature, number }, (rewrite) => {
          this.rewrites.show(rewrite);
          if (rewrite) this.light(rewrite.roles, rewrite.stage, "below");
        }),
      exclude: (signature, node, again) => actions.limit(signature, node, again),
      applyUpTo: (signature, count) => actions.send({ type: "apply-up-to", signature, count }),
      close: () => this.close(),
    });
    this.miss = new NearMissBar({
      asTest,
      showCode: (node) => actions.showCode(node),
      add: (signature, node, number) => actions.send({ type: "add-relaxed", signature, node, number }),
      close: () => this.close(),
    });
    this.others = new FindOthers({
      find: (wish) =>
        this.ask<OthersFound>({ type: "find-others", ...wish }, (found) => {
          if (!found) return;
          this.begin();
          this.others.show(found);
          this.light(found.roles, found.stage);
        }),
      list: () =>
        this.ask<string[]>({ type: "list-functions" }, (names) => names && this.others.offer(names)),
      add: ({ nodes, choices, replacement }) =>
        actions.send({ type: "add-others", nodes, choices, replacement }),
      newPass: ({ nodes, choices }) => this.write("New pass", { type: "new-pass", nodes, choices }),
      close: () => this.close(),
    });
    const panels = [this.rewrites, this.miss, this.others, this.python];
    this.element.append(...panels.map(({ element }) => element));
  }

  get isOpen(): boolean {
    return this.rewrites.isOpen || this.miss.isOpen || this.others.isOpen;
  }

  step(pass: Pass): void {
    this.begin();
    this.closeOthers(this.rewrites);
    this.rewrites.open(pass);
  }

  /** Shows what fits at a node, and why a pass does not apply there. */
  whyNot(pass: Pass, node: string): void {
    this.ask<ShownNearMiss>({ type: "near-miss", signature: pass.signature, node }, (miss) => {
      if (!miss) return;
      this.begin();
      this.closeOthers(this.miss);
      this.miss.show(pass, node, miss);
      this.light(miss.roles, miss.stage);
    });
  }

  /** Adds boxes to the selection, or takes them out unless in a frame; the first are added to what is selected. */
  pick(boxes: Box[], selected: Details | null, framed = false): void {
    if (boxes.length === 0) return;
    const first = !this.isPicking && selected && selectedIn(selected);
    const picked = boxes.map(({ node, path }): Selected =>
      node ? { kind: "node", name: node, pane: 0 } : { kind: "group", name: path, pane: 0 },
    );
    if (first && !picked.some(({ kind, name }) => kind === first.kind && name === first.name))
      this.pickNodes([first]);
    this.pickNodes(picked, framed);
  }

  /** Looks for places like a node or a group. */
  findOthers(details: Details): void {
    const selected = selectedIn(details);
    if (!selected) return;
    this.closeOthers(null);
    this.pickNodes([selected], false, () => this.others.find());
  }

  private pickNodes(picked: Selected[], framed = false, then = (): void => {}): void {
    const names: string[] = [];
    let missing = picked.length;
    this.isPicking = true;
    const take = (value: unknown): void => {
      names.push(...(value as string[]));
      missing -= 1;
      if (missing > 0) return;
      this.closeOthers(this.others);
      this.others.pick(names, framed);
      const { nodes } = this.others;
      this.isPicking = nodes.length > 0;
      if (!this.isPicking) return this.light({});
      this.light(Object.fromEntries(nodes.map((name) => [name, "picked"])), null, "", false);
      then();
    };
    for (const selected of picked) {
      const request = this.actions.request();
      this.waiting.set(request, take);
      this.actions.send({ type: "nodes-of", selected, request });
    }
  }

  /** Keeps to the session; what was found in another stack is no longer true. */
  follow(passes: Pass[]): void {
    const stack = passes.flatMap(({ on, signature }) => (on ? [signature] : [])).join();
    const mayEnd = this.isOpen && stack !== this.stack;
    this.stack = stack;
    this.rewrites.follow(passes);
    if (mayEnd && !this.rewrites.isOpen) this.end();
  }

  setBusy(busy: boolean): void {
    this.rewrites.setBusy(busy);
  }

  /** Takes what the kernel has answered. */
  answered(request: string, value: unknown): void {
    this.waiting.get(request)?.(value);
    this.waiting.delete(request);
  }

  /** Ends what is looked at, and shows the stages as before. */
  close(): void {
    if (!this.isOpen) return;
    const { before } = this;
    this.end();
    const { names, shown, compared } = this.model.get("stages");
    if (before && before.stage < names.length && (shown !== before.stage || compared !== before.compared))
      this.actions.send({ type: "show-stage", ...before });
  }

  private end(): void {
    this.closeOthers(null);
    this.waiting.clear();
    this.before = null;
    this.isPicking = false;
    this.light({});
  }

  /** Closes the panels but one. */
  private closeOthers(open: object | null): void {
    for (const panel of [this.rewrites, this.miss, this.others]) if (panel !== open) panel.close();
  }

  private begin(): void {
    const { shown, compared, beside, between } = this.model.get("stages");
    this.before ??= { stage: shown, compared, beside, between };
  }

  /** Asks for Python and shows it. */
  private write(title: string, message: Asking): void {
    this.ask<string>(message, (text) => text !== null && this.python.show(title, text));
  }

  private ask<T>(message: Asking, show: (value: T | null) => void): void {
    const request = this.actions.request();
    this.waiting.set(request, (value) => show(value as T | null));
    this.actions.send({ type: "ask", message, request });
  }

  private light(
    roles: Record<string, Role>,
    stage: number | null = null,
    compared: Comparison = "",
    show = true,
  ): void {
    this.python.close();
    this.actions.send({ type: "light", stage, compared, roles, show });
  }
}

function selectedIn({ kind, name, path, pane = 0 }: Details): Selected | null {
  const selected = name ?? path;
  return kind === "model" || selected === undefined ? null : { kind, name: selected, pane };
}
