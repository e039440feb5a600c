// A reference run, drawn below the present one.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, isPng, rowsOf, saved, scratch, start, state, until, watched } from "./harness.mjs";

const titles = (words) => `[...document.querySelectorAll("#plots .u-legend .u-label")].some((label) => label.textContent === "${words}")`;

export async function reference(browser, program, shots) {
  const output = join(scratch, "compared");
  mkdirSync(output);
  const run = start(program, ["demo", "--sources", "2", "--rate", "400Hz", "--output", output, "--duration", "120s", "--control", "127.0.0.1:0"]);
  const page = await browser.newPage({ viewport: { width: 1200, height: 1600 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  await until(page, "four seconds of a run", `fetch("/api/v1/state").then((answer) => answer.json()).then((told) => told.age_s > 4)`);
  const field = page.getByLabel("Compare with run");
  await field.fill("77");
  await field.press("Enter");
  await until(page, "what can be compared with", `document.body.textContent.includes("run 77 has no course.json")`);
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await until(page, "configured", state("configured"));
  await until(page, "its course", `fetch("/api/v1/reference", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"run":1}' }).then((answer) => answer.ok)`);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await until(page, "running", state("running"));
  await until(page, "the run that is compared with", titles("events, run 1"));
  expect((await field.inputValue()) === "1", "the field does not say which run it is");
  // Its values at the same age appear beside the present numbers.
  const beside = (id, pattern) => `${pattern}.test(document.getElementById("${id}-before").textContent)`;
  await until(page, "its rate beside the present one", beside("event-rate", "/^run 1: [1-9][\\d,]*$/"));
  await until(page, "its bytes beside the present ones", `${beside("bandwidth-in", "/^run 1: .*B\\/s$/")} && ${beside("pool", "/^run 1: \\d+ %$/")}`);
  await page.locator("#plots").screenshot({ path: join(shots, "reference.png") });
  await page.check("#plots-log");
  await until(page, "the comparison on a logarithmic axis", titles("events, run 1"));
  await page.check("#plots-statistics");
  await until(page, "statistics", `/^events: Entries [1-9].* · mean [1-9][\\d,]* \\/s · RMS /.test(document.querySelector("#plots .statistics").textContent)`);
  const hasBoth = ([heads, ...rows]) => heads[0] === "time" &&
    ["events_per_second", "events_per_second_run_1"].every((name) => rows.some((row) => Number(row[heads.indexOf(name)]) > 0));
  // The plots are read anew every second.
  const begun = Date.now();
  for (;;) {
    const table = rowsOf(await saved(page, "#plots-csv"));
    if (hasBoth(table)) break;
    expect(Date.now() - begun < 10000, `the file: ${table.slice(0, 1)}, ${table.slice(-5).join("; ")}`);
    await page.waitForTimeout(200);
  }
  expect(isPng(await saved(page, "#plots-png")), "the file is not a PNG");
  await field.fill("");
  await field.press("Enter");
  await until(page, "no comparison", `!(${titles("events, run 1")}) && document.getElementById("event-rate-before").textContent === ""`);
  // The unknown run, and run 1 before its trend was stored.
  expectQuiet(/ 404 .*\/api\/v1\/reference/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: a run of the past is laid under the present one, and taken away again");
}
