// What axe-core checks: names, roles, contrast and more, in light and dark, wide and narrow, of each tab, of a good run and of a bad one.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import axe from "axe-core";
import { expect, oneSource, scratch, start, state, until } from "./harness.mjs";

async function check(page, what) {
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const words = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 120)} (${node.failureSummary})`).join("; ")}`);
  expect(violations.length === 0, `axe-core, ${what}: ${words.join("\n")}`);
}

export async function accessible(browser, program) {
  const output = join(scratch, "accessible");
  mkdirSync(output);
  const file = join(output, "bad.toml");
  // Its source never connects: there are alarms.
  writeFileSync(file, `${oneSource(output).replace('name = "ru0"', 'name = "ru0"\nlisten = "127.0.0.1:0"')}
[[source]]
id = 2
readout = "ru0"
format = "generic"
[timeouts]
readout = "500ms"
[[histogram]]
name = "sizes"
of = "size"
from = 0
to = "2KiB"
bins = 4
`);
  for (const options of [["demo", "--sources", "3", "--rate", "100Hz", "--duration", "300s"], ["run", file]]) {
    const run = start(program, [...options, "--output", output, "--control", "127.0.0.1:0"]);
    const address = await run.line(/dashboard: (http:\S+)/);
    for (const colorScheme of ["light", "dark"]) {
      const page = await browser.newPage({ viewport: { width: 1400, height: 900 }, colorScheme });
      await page.goto(address);
      await until(page, "running", state("running"));
      await until(page, "plots", `document.querySelectorAll(".plot canvas").length >= 5`);
      if (options[0] === "run") await until(page, "an alarm", `document.querySelector("#alarms b") !== null`, 20000);
      await page.evaluate(axe.source);
      for (const tab of await page.locator("[role=tab]:visible").all()) {
        await tab.click();
        await check(page, `${options[0]}, ${colorScheme}, ${await tab.textContent()}`);
      }
      await page.locator("#more summary").click();
      await page.locator("#reset").click();
      await check(page, `${options[0]}, ${colorScheme}, a question`);
      await page.keyboard.press("Escape");
      await page.setViewportSize({ width: 390, height: 844 });
      await page.locator("#operator-toggle").click();
      await check(page, `${options[0]}, ${colorScheme}, narrow`);
      await page.close();
    }
    run.child.kill("SIGINT");
    await run.ended;
  }
  console.log("good: axe-core finds nothing, in light and dark, wide and narrow, of a good run and of a bad one");
}
