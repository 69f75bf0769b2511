/** What is looked at closely above the graph: one of several panels, which lights its nodes up. */

import { h } from "../base/dom";
import type { Comparison, LookedAt, Model, ToViewer } from "../base/protocol";
import { NearMissBar, RewriteBar } from "../panels/bench_bars";
import type { Pass, Role, ShownNearMiss, ShownRewrite } from "../base/wire";

export interface BenchActions {
  send<T>(message: ToViewer): Promise<T | null>;
  limit(signature: string, node: string, again: boolean): void;
  /** Shows the line of a node. */
  showCode(node: string): void;
  /** Something is looked at closely, or no longer: the graph needs the room. */
  opened(isOpen: boolean): void;
}

export class Bench {
  readonly element = h("div.fxi-bench-slot");
  private readonly rewrites: RewriteBar;
  private readonly miss: NearMissBar;
  /** How the stages were looked at before. */
  private before: LookedAt | null = null;
  /** The passes that are on. */
  private stack = "";

  constructor(
    private readonly model: Model,
    private readonly actions: BenchActions,
  ) {
    this.rewrites = new RewriteBar({
      ask: (signature, number) => actions.send<ShownRewrite>({ type: "rewrite", signature, number }),
      light: ({ roles, stage }) => this.light(roles, stage, "below"),
      exclude: (signature, node, again) => actions.limit(signature, node, again),
      applyUpTo: (signature, count) => actions.send({ type: "apply-up-to", signature, count }),
      close: () => this.close(),
    });
    this.miss = new NearMissBar({ showCode: (node) => actions.showCode(node), close: () => this.close() });
    this.element.append(this.rewrites.element, this.miss.element);
  }

  get isOpen(): boolean {
    return this.rewrites.isOpen || this.miss.isOpen;
  }

  step(pass: Pass): void {
    this.begin();
    this.miss.close();
    this.rewrites.open(pass);
  }

  /** Shows what fits at a node, and why a pass does not apply there. */
  async whyNot(pass: Pass, node: string): Promise<void> {
    const { stack } = this;
    const { signature } = pass;
    const miss = await this.actions.send<ShownNearMiss>({ type: "near-miss", signature, node });
    if (!miss || stack !== this.stack) return;
    this.begin();
    this.rewrites.close();
    this.miss.show(pass, miss);
    this.light(miss.roles, miss.stage);
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
    this.rewrites.close();
    this.miss.close();
    this.before = null;
    this.light({});
    this.actions.opened(false);
  }

  private begin(): void {
    const { shown, compared, beside, between } = this.model.get("stages");
    this.before ??= { stage: shown, compared, beside, between };
    this.actions.opened(true);
  }

  private light(roles: Record<string, Role>, stage: number | null = null, compared: Comparison = ""): void {
    void this.actions.send({ type: "light", stage, compared, roles });
  }
}
