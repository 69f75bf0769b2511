/** What is looked at closely above the graph: one of several panels, which lights its nodes up. */

import { h } from "../base/dom";
import type { Model } from "../base/model";
import type { Asking, Comparison, LookedAt, ToViewer } from "../base/protocol";
import { NearMissBar } from "../panels/bench/near_miss_bar";
import { RewriteBar } from "../panels/bench/rewrite_bar";
import type { Pass, Role, ShownNearMiss, ShownRewrite } from "../base/wire";

export interface BenchActions {
  send(message: ToViewer): void;
  request(): string;
  limit(signature: string, node: string, again: boolean): void;
  /** Shows the line of a node. */
  showCode(node: string): void;
}

export class Bench {
  readonly element = h("div", { class: "fxi-bench-slot" });
  private readonly waiting = new Map<string, (value: unknown) => void>();
  private readonly rewrites: RewriteBar;
  private readonly miss: NearMissBar;
  /** How the stages were looked at before. */
  private before: LookedAt | null = null;

  constructor(
    private readonly model: Model,
    private readonly actions: BenchActions,
  ) {
    this.rewrites = new RewriteBar({
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
      showCode: (node) => actions.showCode(node),
      add: (signature, node, number) => actions.send({ type: "add-relaxed", signature, node, number }),
      close: () => this.close(),
    });
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
  whyNot(pass: Pass, node: string): void {
    this.ask<ShownNearMiss>({ type: "near-miss", signature: pass.signature, node }, (miss) => {
      if (!miss) return;
      this.begin();
      this.rewrites.close();
      this.miss.show(pass, node, miss);
      this.light(miss.roles, miss.stage);
    });
  }

  follow(passes: Pass[]): void {
    this.rewrites.follow(passes);
    this.miss.follow(passes);
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
    this.rewrites.close();
    this.miss.close();
    this.waiting.clear();
    this.light({});
    const { before } = this;
    this.before = null;
    if (before && before.stage < this.model.get("stages").names.length)
      this.actions.send({ type: "show-stage", ...before });
  }

  private begin(): void {
    const { shown, compared, beside, between } = this.model.get("stages");
    this.before ??= { stage: shown, compared, beside, between };
  }

  private ask<T>(message: Asking, show: (value: T | null) => void): void {
    const request = this.actions.request();
    this.waiting.set(request, (value) => show(value as T | null));
    this.actions.send({ type: "ask", message, request });
  }

  private light(roles: Record<string, Role>, stage: number | null = null, compared: Comparison = ""): void {
    this.actions.send({ type: "light", stage, compared, roles });
  }
}
