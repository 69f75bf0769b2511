import { afterEach, beforeEach, expect, it } from "vitest";
import { App } from "../src/app/app";
import { FakeKernel, Page, settled } from "./fake_kernel";
import { vectorsOf } from "./golden";

let kernel: FakeKernel;
let page: Page;
let app: App;
let isBusy = true;
const line = (): HTMLElement => app.element.querySelector(".fxi-busy")!;
const pressSwitch = (): void => app.element.querySelector<HTMLElement>(".fxi-switch")!.click();
const isOn = (): string => app.element.querySelector(".fxi-switch")!.getAttribute("aria-checked")!;
const selectByHand = async (name: string): Promise<void> => {
  app.element
    .querySelector<HTMLElement>(`[data-box="${page.boxOf(name)}"] > .fx-shape`)!
    .dispatchEvent(new MouseEvent("pointerdown", { bubbles: true, button: 0 }));
  window.dispatchEvent(new MouseEvent("pointerup"));
  await settled();
};
const patience = (): Promise<void> => new Promise((done) => setTimeout(done, 800));

beforeEach(async () => {
  kernel = new FakeKernel(vectorsOf("conv"));
  page = await Page.of(kernel);
  isBusy = true;
  app = new App(page.viewer, null, () => isBusy);
  document.body.append(app.element);
  await page.sends({ type: "open-level" });
  kernel.held.add("toggle");
});

afterEach(() => {
  app.dispose();
  app.element.remove();
});

it("says within a second that the kernel is busy, and goes on saying it while the page answers other clicks", async () => {
  pressSwitch();
  await selectByHand("stem_norm");
  expect(page.get("details").name).toBe("stem_norm");
  expect(isOn(), "as it was pressed").toBe("true");
  await patience();
  expect(line().hidden).toBe(false);
  expect(line().textContent).toContain("The kernel is busy …");
  expect(line().textContent).toContain("What was asked for comes next.");
  await selectByHand("stem_conv");
  expect(line().hidden).toBe(false);
  expect(isOn()).toBe("true");
  kernel.release();
  await settled();
  expect(line().hidden).toBe(true);
});

it("says nothing of a kernel that answers at once", async () => {
  await selectByHand("stem_norm");
  await patience();
  expect(line().hidden).toBe(true);
});

it("waits for a kernel of which nobody knows what it does", async () => {
  isBusy = false;
  pressSwitch();
  await patience();
  expect(line().textContent).toContain("Waiting for the kernel …");
  expect(line().textContent).toContain("It is busy, or was stopped");
});
