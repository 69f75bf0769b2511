/** The nodes that a query lights up in the graphs on the screen. */

import type { NodesFound } from "../../base/protocol";
import { FOUND, type Panes } from "../graphs/panes";
import type { Scene } from "../graphs/scene";
import { QueryError } from "./query";
import { countsOf } from "../../base/format";

interface Names {
  names: string[];
  message: string;
}

export class NodeFilter {
  readonly query: string;
  /** What each graph has answered: neither it nor the query changes. */
  private readonly answers = new WeakMap<Scene, Names>();

  /** An empty query finds nothing. */
  constructor(query = "") {
    this.query = query.trim();
  }

  /** Opens the groups that hold what is found, as far as the budget allows, and closes those that held it. */
  uncovered(panes: Panes): Panes {
    let after = panes.forget(FOUND);
    this.found(after).forEach(({ names }, i) => (after = after.revealFor(FOUND, names, i)));
    return after;
  }

  /** Returns what is found in the first graph that has any. */
  first(panes: Panes): { names: string[]; pane: number } | null {
    const found = this.found(panes);
    const i = found.findIndex(({ names }) => names.length > 0);
    return i < 0 ? null : { names: found[i]!.names, pane: i };
  }

  /** Says what is lit up, and how much of it is in each visible box. */
  state(panes: Panes): NodesFound | null {
    if (!this.query) return null;
    const found = this.found(panes);
    const message = found.every((side) => side.message) ? found[0]!.message : "";
    return {
      query: this.query,
      count: found[0]!.names.length,
      message,
      boxes: found.map(({ names }, i) =>
        countsOf(names.flatMap((name) => panes.all[i]!.view.boxOf(name) ?? [])),
      ),
    };
  }

  private found(panes: Panes): Names[] {
    return panes.all.map(({ scene }) => {
      if (!this.answers.has(scene)) this.answers.set(scene, this.answer(scene));
      return this.answers.get(scene)!;
    });
  }

  private answer(scene: Scene): Names {
    try {
      return { names: this.query ? scene.search.names(this.query) : [], message: "" };
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      return { names: [], message: error.message };
    }
  }
}
