// The dashboard in a real browser, with real runs.
//
//   node browser.mjs PROGRAM [DIRECTORY]
//
// PROGRAM is the built `ropewalk`; screenshots go to DIRECTORY. CHROMIUM names another browser than Debian's.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { accessible } from "./accessible.mjs";
import { controls } from "./controls.mjs";
import { gateway } from "./gateway.mjs";
import { guarded } from "./guarded.mjs";
import { clean } from "./harness.mjs";
import { histograms } from "./histograms.mjs";
import { keyboard } from "./keyboard.mjs";
import { many } from "./many.mjs";
import { notes } from "./notes.mjs";
import { parameters } from "./parameters.mjs";
import { fields, masks, parts } from "./parts.mjs";
import { quality } from "./quality.mjs";
import { reference } from "./reference.mjs";
import { shift } from "./shift.mjs";

const [program, shots = "dashboard-screenshots"] = process.argv.slice(2);
if (!program) {
  console.error("usage: node browser.mjs PROGRAM [DIRECTORY]");
  process.exit(2);
}
mkdirSync(shots, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let status = 0;
try {
  for (const test of [shift, quality, accessible, many, parts, fields, masks, controls, parameters, guarded, keyboard, reference, histograms, notes, gateway]) await test(browser, program, shots);
} catch (error) {
  console.error(`FAILED: ${error.stack}`);
  status = 1;
  for (const page of browser.contexts().flatMap((context) => context.pages())) {
    await page.screenshot({ path: join(shots, "failed.png"), fullPage: true }).catch(() => {});
  }
} finally {
  await browser.close();
  clean();
}
process.exit(status);
