/**
 * The nodes that a query lights up in the graphs on the screen; the twin of
 * `fxlab.view_model.graph_view.node_filter`.
 */

import type { NodesFound } from "../../base/protocol";
import type { Panes } from "../panes";
import { QueryError } from "./query";
import type { Scene } from "../scene";

interface Names {
  names: string[];
  message: string;
}

export class NodeFilter {
  private readonly query: string;
  /** Groups that were opened because they hold what is found. */
  private readonly opened: Set<string>;
  /** What each graph has answered: neither it nor the query changes. */
  private readonly answers = new Map<Scene, Names>();

  /** An empty query finds nothing; `before` is the filter that this one takes the place of. */
  constructor(query = "", before?: NodeFilter) {
    this.query = query.trim();
    this.opened = new Set(before?.opened);
  }

  /** Lets a group stay open that a person has opened. */
  keep(path: string): void {
    this.opened.delete(path);
  }

  /**
   * Opens the groups that hold what is found, as far as the budget allows, and closes those that held what
   * was found.
   */
  uncovered(panes: Panes): Panes {
    let after = panes.showing(this.without(panes));
    const before = after.opened;
    this.found(after).forEach(({ names }, i) => {
      const { leafOf } = after.all[i]!.scene.hierarchy;
      const position = (name: string): number => leafOf.get(name)?.position ?? 0;
      after = after.revealChanged(
        [...names].sort((a, b) => position(a) - position(b)),
        i > 0,
      );
    });
    this.opened.clear();
    for (const path of after.opened) if (!before.has(path)) this.opened.add(path);
    return after;
  }

  /** Returns what is found in the first graph that has any. */
  first(panes: Panes): { names: string[]; before: boolean } | null {
    const found = this.found(panes);
    const i = found.findIndex(({ names }) => names.length > 0);
    return i < 0 ? null : { names: found[i]!.names, before: i > 0 };
  }

  /** Says what is lit up, and how much of it is in each visible box. */
  state(panes: Panes): NodesFound | Record<string, never> {
    if (!this.query) return {};
    const found = this.found(panes);
    const [boxes, before] = found.map(({ names }, i) =>
      counts(names.flatMap((name) => panes.all[i]!.view.boxOf(name) ?? [])),
    );
    const message = found.every((side) => side.message) ? found[0]!.message : "";
    return {
      query: this.query,
      count: found[0]!.names.length,
      message,
      boxes: boxes ?? {},
      before: before ?? {},
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

  /**
   * Returns what is open without what was opened here, but for groups around something that a person has
   * opened.
   */
  private without(panes: Panes): string[] {
    const needed = new Set<string>();
    for (const path of panes.opened) {
      if (this.opened.has(path)) continue;
      for (const { scene } of panes.all) {
        for (let around = scene.hierarchy.groups.get(path)?.parent; around; around = around.parent)
          needed.add(around.path);
      }
    }
    return [...panes.opened].filter((path) => !this.opened.has(path) || needed.has(path));
  }
}

function counts(boxes: string[]): Record<string, number> {
  const counted: Record<string, number> = {};
  for (const box of boxes) counted[box] = (counted[box] ?? 0) + 1;
  return counted;
}
