/** The graphs that have arrived, ready to be shown: one, or two side by side. */

import { Counterparts } from "./counterparts";
import type { Data } from "./data";
import { Panes, type Opened } from "./panes";
import { Scene } from "./scene";
import type { Pass } from "../../base/wire";

type Shown = Pick<Panes, "scene" | "beside">;

export class Graphs {
  private readonly scenes = new Map<number, Scene>();
  private readonly pairs = new Map<number, Shown>();

  constructor(
    private readonly data: Data,
    private readonly passes: () => readonly Pass[],
  ) {}

  scene(number: number): Scene {
    let scene = this.scenes.get(number);
    if (!scene) this.scenes.set(number, (scene = new Scene(this.data, number, this.passes)));
    return scene;
  }

  panesOf(number: number, opened: Opened): Panes {
    return new Panes(this.data.metrics, this.scene(number), null, opened);
  }

  panesOfPair(number: number, opened: Opened): Panes {
    const { scene, beside } = this.pair(number);
    return new Panes(this.data.metrics, scene, beside, opened);
  }

  /** Reads graphs anew of which more has arrived; returns whether there are any. */
  renew(): boolean {
    const { filled } = this.data;
    if (filled.size === 0) return false;
    for (const number of filled) this.scenes.delete(number);
    this.pairs.clear();
    filled.clear();
    return true;
  }

  private pair(number: number): Shown {
    const known = this.pairs.get(number);
    if (known) return known;
    const { after, before, signatures, looks, counterparts } = this.data.pairs[number]!;
    const scene = new Scene(this.data, after, this.passes, signatures, looks[0]);
    const other = new Scene(this.data, before, this.passes, signatures, looks[1]);
    const made: Shown = {
      scene,
      beside: { scene: other, counterparts: new Counterparts(other, scene, counterparts) },
    };
    this.pairs.set(number, made);
    return made;
  }
}
