/** What the kernel says of nodes and groups beyond what the page knows; asked once for each. */

import { objectWith } from "../../base/read_message";
import type { Data } from "../graphs/data";
import type { Kernel } from "../kernels/kernel";
import type { Scene } from "../graphs/scene";
import type { Extra, Selected } from "../../base/wire";

export class Extras {
  /** By graph, kind and name. */
  private known = new Map<string, Extra>();
  private asking = new Set<string>();

  constructor(private readonly kernel: Kernel) {}

  /** Forgets everything: the session has changed. */
  clear(): void {
    this.known = new Map();
    this.asking = new Set();
  }

  /** Returns what has been said; a report has it among its data. */
  of(data: Data, scene: Scene, { kind, name }: Selected): Extra | null {
    const { extras } = scene.graph;
    if (!extras) return this.known.get(`${scene.number} ${kind} ${name}`) ?? null;
    const place =
      kind === "group"
        ? extras.groups[name]
        : extras.nodes[scene.hierarchy.nodes.findIndex((node) => node.name === name)];
    return data.extras[place!] ?? null;
  }

  /** Asks for it, unless it is being asked for; returns whether it is known now. */
  async ask({ number }: Scene, { kind, name }: Selected): Promise<boolean> {
    const { known, asking } = this;
    const question = `${number} ${kind} ${name}`;
    if (this.kernel.isFixed || asking.has(question)) return false;
    asking.add(question);
    try {
      const { value } = await this.kernel.ask({ type: "details", graph: number, kind, name });
      if (known !== this.known || !isExtra(value)) return false;
      known.set(question, value);
      return true;
    } finally {
      asking.delete(question);
    }
  }
}

function isExtra(value: unknown): value is Extra {
  return Array.isArray(objectWith(value, "fields")?.["fields"]);
}
