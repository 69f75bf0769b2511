/** What there is of a session where there is no kernel: the data of a report. */

import type { Passes, Tables, ToKernel } from "../base/protocol";
import { PLAIN } from "./arrangement";
import { Data, type DataPart } from "./data";
import type { Answer, Kernel, KernelState, StagesKnown } from "./kernel";

/** What is embedded in a report, as `fxlab/html_report/report.py` writes it. */
export interface WrittenReport {
  data: DataPart;
  stages: StagesKnown;
  passes: Passes;
  tables: Tables;
}

export class ReportKernel implements Kernel {
  readonly isFixed = true;
  readonly data = new Data();
  readonly state: KernelState;

  constructor({ data, stages, passes, tables }: WrittenReport) {
    this.data.add(data);
    this.state = {
      ...{ stages, passes, tables },
      measured: [],
      status: { busy: null, error: null },
      overlays: [],
      view: {
        ...{ stage: null, compared: "", beside: false },
        ...{ opened: null, query: "", overlay: "", selected: null },
        ...PLAIN,
      },
      height: 0,
    };
  }

  async ready(): Promise<void> {}

  follow(): void {}

  keep(): void {}

  ask(message: ToKernel): Promise<Answer> {
    return Promise.reject(
      new Error(
        `A report shows a session as it was. To ${message.type.replace("-", " ")}, open the model with fxlab.inspect.`,
      ),
    );
  }
}
