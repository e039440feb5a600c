// What axe-core checks: names, roles, contrast and more, in light and dark, wide and narrow, of each tab, of a good run and of a bad one.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import axe from "axe-core";
import { expect, oneSource, scratch, start, state, until } from "./harness.mjs";

// Structure is the same in light and dark: in the dark, contrast alone is checked.
async function check(page, what, part = "html") {
  const { violations } = await page.evaluate((selector) => {
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    return window.axe.run(selector, { resultTypes: ["violations"], preload: false, ...(isDark ? { runOnly: ["color-contrast"] } : {}) });
  }, part);
  const words = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 120)} (${node.failureSummary})`).join("; ")}`);
  expect(violations.length === 0, `axe-core, ${what}: ${words.join("\n")}`);
}

// Its second source never connects: there are alarms.
const configuration = (output) => `${oneSource(output).replace('name = "ru0"', 'name = "ru0"\nlisten = "127.0.0.1:0"')}
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
`;

async function open(browser, address, colorScheme, ready) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 }, colorScheme });
  await page.goto(address);
  await until(page, "running", state("running"));
  await until(page, "plots", `document.querySelectorAll(".plot canvas").length >= 5`);
  await until(page, "the run as it is to be", ready, 20000);
  await page.evaluate(axe.source);
  return page;
}

// Everything that the page can show, part by part.
async function checkAll(page, what) {
  await page.locator("#more summary").click();
  await check(page, what);
  for (const tab of await page.locator("[role=tab]:visible").all()) {
    await tab.click();
    await check(page, `${what}, ${await tab.textContent()}`, ".tabs");
  }
  await page.locator("#reset").click();
  await check(page, `${what}, a question`, "dialog");
  await page.keyboard.press("Escape");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.locator("#operator-toggle").click();
  await check(page, `${what}, narrow`);
}

export async function accessible(browser, program) {
  const output = join(scratch, "accessible");
  mkdirSync(output);
  const file = join(output, "bad.toml");
  writeFileSync(file, configuration(output));
  const good = start(program, ["demo", "--sources", "3", "--rate", "100Hz", "--duration", "300s", "--output", output, "--control", "127.0.0.1:0"]);
  const isGood = `document.querySelector("#alarms .none") !== null`;
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, await good.line(/dashboard: (http:\S+)/), colorScheme, isGood);
    await check(page, `a good run, ${colorScheme}`, "#quality");
    await check(page, `a good run, ${colorScheme}`, "header");
    await page.close();
  }
  good.child.kill("SIGINT");
  await good.ended;
  const bad = start(program, ["run", file, "--output", output, "--control", "127.0.0.1:0"]);
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, await bad.line(/dashboard: (http:\S+)/), colorScheme, `document.querySelector("#alarms b") !== null`);
    await checkAll(page, `a bad run, ${colorScheme}`);
    await page.close();
  }
  bad.child.kill("SIGINT");
  await bad.ended;
  console.log("good: axe-core finds nothing, in light and dark, wide and narrow, of a good run and of a bad one");
}
