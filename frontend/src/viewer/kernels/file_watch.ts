/** Has the kernel look at the files of passes now and then, while the page is seen. */

import type { Kernel } from "./kernel";

const EVERY_MS = 3000;

export class FileWatch {
  private isAsking = false;
  private readonly timer = setInterval(() => void this.look(), EVERY_MS);

  constructor(private readonly kernel: Kernel) {}

  dispose(): void {
    clearInterval(this.timer);
  }

  private async look(): Promise<void> {
    const { passes, status } = this.kernel.state;
    if (this.isAsking || document.hidden || !passes.hasFiles || status.busy) return;
    this.isAsking = true;
    // A kernel that does not answer is asked no more.
    await this.kernel.ask({ type: "look-at-files" }).catch(() => {});
    this.isAsking = false;
  }
}
