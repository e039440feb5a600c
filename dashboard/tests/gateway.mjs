// A system whose sources push: the same page, another data flow.
import { join } from "node:path";
import { expect, isInOrder, number, scratch, start, state, text, until, watched } from "./harness.mjs";

const stands = (words) => `document.querySelector("#path svg").textContent.includes("${words}")`;

export async function gateway(browser, program, shots) {
  const example = new URL("../../examples/lhcb-gateway.toml", import.meta.url).pathname;
  const options = ["--output", join(scratch, "pushed"), "--duration", "120s", "--control", "127.0.0.1:0"];
  const run = start(program, ["run", example, ...options]);
  const page = await browser.newPage({ viewport: { width: 1400, height: 1600 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  await until(page, "running", state("running"));
  await until(page, "events", `${number("event-rate")} > 100`);
  for (const words of ["449 sources", "1 gateway", "sets in use", "farm", "decided by the farm"]) {
    await until(page, words, stands(words));
  }
  await page.screenshot({ path: join(shots, "gateway.png"), timeout: 90000 });
  await isInOrder(page);
  await page.getByRole("button", { name: "Pause", exact: true }).click();
  await until(page, "paused", state("paused"));
  await until(page, "no event", `${number("event-rate")} === 0`);
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await until(page, "events again", `${number("event-rate")} > 100`);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await until(page, "configured", state("configured"), 20000);
  await until(page, "the run in the list", `${text("runs")}.includes("ended")`);
  expectQuiet();
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: a system whose sources push is seen, paused and stopped as any other");
}
