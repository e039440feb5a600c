// The dashboard in a real browser, with real runs.
//
//   node browser.mjs PROGRAM [DIRECTORY [TEST...]]
//
// PROGRAM is the built `ropewalk`; screenshots go to DIRECTORY. Without a TEST, such as `shift`, all tests run. CHROMIUM names another browser than Debian's.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { accessible } from "./accessible.mjs";
import { controls } from "./controls.mjs";
import { faults } from "./faults.mjs";
import { gateway } from "./gateway.mjs";
import { guarded } from "./guarded.mjs";
import { clean, endTry } from "./harness.mjs";
import { histograms } from "./histograms.mjs";
import { keyboard } from "./keyboard.mjs";
import { many } from "./many.mjs";
import { notes } from "./notes.mjs";
import { parameters } from "./parameters.mjs";
import { fields, masks, parts } from "./parts.mjs";
import { quality } from "./quality.mjs";
import { reference } from "./reference.mjs";
import { shift } from "./shift.mjs";

const [program, shots = "dashboard-screenshots", ...names] = process.argv.slice(2);
if (!program) {
  console.error("usage: node browser.mjs PROGRAM [DIRECTORY]");
  process.exit(2);
}
mkdirSync(shots, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
const all = [shift, quality, faults, accessible, many, parts, fields, masks, controls, parameters, guarded, keyboard, reference, histograms, notes, gateway];

// Runs a test; after a failure once more, because a busy machine can make it late. Programs of the first try are ended.
async function passes(test) {
  for (const isLast of [false, true]) {
    try {
      await test(browser, program, shots);
      return true;
    } catch (error) {
      console.error(`${isLast ? "FAILED" : "first try failed"}: ${test.name}: ${error.stack}`);
      for (const page of browser.contexts().flatMap((context) => context.pages())) {
        await page.screenshot({ path: join(shots, "failed.png"), fullPage: true }).catch(() => {});
        await page.close().catch(() => {});
      }
      endTry();
    }
  }
  return false;
}

let status = 0;
for (const test of all.filter(({ name }) => names.length === 0 || names.includes(name))) {
  if (!(await passes(test))) status = 1;
}
await browser.close();
clean();
process.exit(status);
