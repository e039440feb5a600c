// What the tests of the dashboard have in common: programs that are started and always ended, and waiting.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const sender = join(here, "../../examples/senders/ropewalk_sender.py");
const children = new Set();

const root = mkdtempSync(join(tmpdir(), "ropewalk-dashboard-"));
// A directory that each try has for itself.
export let scratch = mkdtempSync(join(root, "try-"));

export function expect(holds, words) {
  if (!holds) throw new Error(words);
}

// Starts a program; lines of its stderr are waited for with `line`.
export function start(command, options) {
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

// A front end that is a program of its own: it can be stopped and killed. It is faster than those that are emulated, so that it
// catches up although it began later.
export const frontEnd = (to, source, size) =>
  start("python3", [sender, "--to", to, "--source", String(source), "--rate", "600", "--size", String(size), "--events", "0"]);

// Ends all programs that still run; the next try gets a new directory.
export function endTry() {
  children.forEach((child) => child.kill("SIGKILL"));
  scratch = mkdtempSync(join(root, "try-"));
}

export function clean() {
  endTry();
  rmSync(root, { recursive: true, force: true });
}

// Waits until what is said in JavaScript holds on the page; after how many milliseconds it did.
export async function until(page, what, holds, milliseconds = 10000) {
  const begun = Date.now();
  for (;;) {
    if (await page.evaluate(holds)) return Date.now() - begun;
    expect(Date.now() - begun < milliseconds, `${what}: not within ${milliseconds} ms`);
    await page.waitForTimeout(50);
  }
}

// A number on the page, and a text.
export const number = (id) => `Number(document.getElementById("${id}").textContent.replace(/,/g, ""))`;
export const text = (id) => `document.getElementById("${id}").textContent`;
export const state = (name) => `${text("state")} === "${name}"`;

// Watches the console. What it gives is called at the end of a test, and fails where there was any error but those that the test names: what
// they say and, of what could not be loaded, from where.
export function watched(page) {
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(`${message.text()} ${message.location().url}`);
  });
  return (...expected) => {
    const others = errors.filter((error) => !expected.some((pattern) => pattern.test(error)));
    expect(others.length === 0, `on the console: ${others.join("; ")}`);
  };
}

// Selects a tab of the details by its name.
export const tab = (page, name) => page.getByRole("tab", { name, exact: true }).click();

// The bytes of the file that a button saves.
export async function saved(page, button) {
  const [file] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return readFileSync(await file.path());
}

// The rows of a CSV file, and whether a file is a picture.
export const rowsOf = (bytes) => bytes.toString("utf8").trim().split("\n").map((line) => line.split(","));
export const isPng = (bytes) => bytes.subarray(1, 4).toString("latin1") === "PNG" && bytes.length > 1000;

// Each control has a name for screen readers, ids are unique, and no element is wider than the window.
export async function isInOrder(page) {
  const nameless = await page.$$eval("button, input, select, dialog, fieldset, [role=img], [role=region], [role=group], [role=tab], [role=tabpanel]", (elements) => elements
    .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length || one.getAttribute("aria-labelledby")))
    .map((one) => one.outerHTML.slice(0, 80)));
  expect(nameless.length === 0, `without a name: ${nameless.join(" ")}`);
  const twice = await page.$$eval("[id]", (elements) => elements.map((one) => one.id).filter((id, index, all) => all.indexOf(id) !== index));
  expect(twice.length === 0, `two elements of one name: ${twice.join(" ")}`);
  const wide = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth");
  const widest = await page.$$eval("body *", (elements) => elements
    .filter((one) => one.getBoundingClientRect().right > window.innerWidth + 1 && !one.closest(".scroll, pre, .bars"))
    .map((one) => one.outerHTML.slice(0, 80)));
  expect(wide <= 1, `the page is ${wide} pixels wider than the window: ${widest.at(-1)}`);
}

// The configuration of a run with one emulated source; with these lines in the section `run`.
export const oneSource = (output, ...run) => `version = 1
[run]
output = ${JSON.stringify(output)}
${run.join("\n")}
[[readout]]
name = "ru0"
[[builder]]
name = "bu0"
[[source]]
id = 1
readout = "ru0"
emulate = { rate = "100Hz", fragment_size = "1KiB" }
`;
