// The dashboard in a real browser, with real runs.
//
//   node browser.mjs PROGRAM [DIRECTORY]
//
// PROGRAM is the built `ropewalk`; screenshots go to DIRECTORY. CHROMIUM names another browser than Debian's.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const [program, shots = "dashboard-screenshots"] = process.argv.slice(2);
if (!program) {
  console.error("usage: node browser.mjs PROGRAM [DIRECTORY]");
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
const sender = join(here, "../../examples/senders/ropewalk_sender.py");
const scratch = mkdtempSync(join(tmpdir(), "ropewalk-dashboard-"));
mkdirSync(shots, { recursive: true });
const children = new Set();

// Two front ends of which one is a program that can be killed: without it events are incomplete, and go on.
const configuration = `version = 1
[run]
output = ${JSON.stringify(scratch)}
[timeouts]
readout = "200ms"
[[readout]]
name = "ru0"
listen = "127.0.0.1:0"
[[builder]]
name = "bu0"
[[source]]
id = 1
readout = "ru0"
on_close = "end"
emulate = { rate = "400Hz", fragment_size = "1KiB" }
[[source]]
id = 2
readout = "ru0"
format = "generic"
on_close = "end"
`;

function expect(holds, words) {
  if (!holds) throw new Error(words);
}

// Starts a program; lines of its stderr are waited for with `line`.
function start(command, options) {
  const child = spawn(command, options, { stdio: ["ignore", "ignore", "pipe"] });
  children.add(child);
  child.on("exit", () => children.delete(child));
  let text = "";
  child.stderr.on("data", (data) => { text += data; });
  const line = async (pattern) => {
    for (let wait = 0; wait < 300; wait += 1) {
      const found = pattern.exec(text);
      if (found) return found[1];
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`${command} never said ${pattern}: ${text}`);
  };
  const ended = new Promise((done) => child.on("exit", done));
  return { child, line, ended };
}

const ropewalk = (...options) => start(program, options);

async function until(page, what, holds, milliseconds = 10000) {
  const begun = Date.now();
  for (;;) {
    if (await page.evaluate(holds)) return Date.now() - begun;
    expect(Date.now() - begun < milliseconds, `${what}: not within ${milliseconds} ms`);
    await page.waitForTimeout(50);
  }
}

const number = (id) => `Number(document.getElementById("${id}").textContent.replace(/,/g, ""))`;

// Errors on the console, but for those of a server that is away on purpose.
function watched(page) {
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/net::ERR_|Failed to load resource/.test(message.text())) errors.push(message.text());
  });
  return errors;
}

async function liveRun(browser) {
  const file = join(scratch, "dashboard.toml");
  writeFileSync(file, configuration);
  const run = ropewalk("run", file, "--control", "127.0.0.1:0", "--idle");
  const address = await run.line(/dashboard: (http:\S+)/);
  const readout = await run.line(/ru0 listens on (\S+)/);
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 } });
  const errors = watched(page);
  await page.goto(address);
  await until(page, "configured", `document.getElementById("state").textContent === "configured"`);
  expect(await page.isDisabled("text=Pause"), "a pause is offered before there is a run");

  const options = ["--to", readout, "--source", "2", "--rate", "400", "--size", "500", "--events", "0"];
  const other = start("python3", [sender, ...options]);
  await page.click("text=Start");
  await until(page, "running", `document.getElementById("state").textContent === "running"`);
  await until(page, "events", `${number("built")} > 50`);
  const before = await page.evaluate(number("built"));
  await until(page, "more events", `${number("built")} > ${before}`);
  await until(page, "a rate", `${number("event-rate")} > 50`);
  await until(page, "the journal", `document.querySelectorAll("#journal li").length > 2`);
  const texts = await page.$$eval("#journal li", (items) => items.map((item) => item.textContent));
  expect(new Set(texts).size === texts.length, `the journal says things twice: ${texts}`);
  await page.screenshot({ path: join(shots, "running.png"), fullPage: true });
  console.log("good: it loads, starts a run by its button, and shows rising numbers");

  other.child.kill("SIGKILL");
  const row = `[...document.querySelectorAll("#sources tbody tr")].some((row) => row.cells[0].textContent === "2" && row.className === "silent")`;
  const took = await until(page, "the killed source is red", row, 2000);
  const first = `[...document.querySelectorAll("#sources tbody tr")].some((row) => row.cells[0].textContent === "1" && row.className === "silent")`;
  expect(!(await page.evaluate(first)), "the source that lives is red, too");
  await page.screenshot({ path: join(shots, "killed-source.png"), fullPage: true });
  console.log(`good: a killed source is red after ${took} ms`);

  await page.click("text=Pause");
  await until(page, "paused", `document.getElementById("state").textContent === "paused"`);
  await page.click("text=Resume");
  await until(page, "running again", `document.getElementById("state").textContent === "running"`);
  await page.focus("text=Stop");
  await page.keyboard.press("Enter");
  await until(page, "stopped", `document.getElementById("state").textContent.startsWith("configured")`);
  await until(page, "the next run can start", `!document.querySelector("[data-command=start]").disabled`);
  const names = await page.$$eval("button", (buttons) => buttons.filter((button) => !button.textContent.trim()).length);
  expect(names === 0, "buttons have names");
  console.log("good: pause, resume, and stop from the keyboard");

  await restarted(page, run, file, address);
  expect(errors.length === 0, `errors on the console: ${errors.join("; ")}`);
  await page.close();
}

// The server goes away and comes back at the same address: the page says so, and goes on by itself.
async function restarted(page, run, file, address) {
  run.child.kill("SIGKILL");
  await run.ended;
  await until(page, "the page says that nobody answers", `document.getElementById("state").textContent === "no answer"`);
  const again = ropewalk("run", file, "--control", new URL(address).host, "--idle");
  await again.line(/dashboard: (http:\S+)/);
  await until(page, "connected again", `document.getElementById("state").textContent === "configured"`, 20000);
  expect(await page.isHidden("#notice"), "the notice is gone");
  again.child.kill("SIGINT");
  await again.ended;
  console.log("good: it connects again after a restart");
}

async function manySources(browser) {
  const options = ["--sources", "700", "--rate", "20Hz", "--duration", "60s", "--output", scratch, "--control", "127.0.0.1:0"];
  const run = ropewalk("demo", ...options);
  const address = await run.line(/dashboard: (http:\S+)/);
  const page = await browser.newPage({ viewport: { width: 390, height: 844 }, colorScheme: "dark" });
  const errors = watched(page);
  await page.goto(address);
  await until(page, "700 rows", `document.querySelectorAll("#sources tbody tr").length === 700`, 20000);
  const moved = await page.evaluate(async () => {
    const box = document.querySelector(".scroll");
    box.scrollTop = 10000;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    return box.scrollTop;
  });
  expect(moved > 5000, `the table scrolls to ${moved}`);
  const wide = await page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1");
  expect(!wide, "the page is wider than a phone");
  await page.screenshot({ path: join(shots, "phone-dark.png") });
  expect(errors.length === 0, `errors on the console: ${errors.join("; ")}`);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: 700 sources on a phone, in the dark");
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
let status = 0;
try {
  await liveRun(browser);
  await manySources(browser);
} catch (error) {
  console.error(`FAILED: ${error.stack}`);
  status = 1;
} finally {
  await browser.close();
  for (const child of children) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
}
process.exit(status);
