// Notes on runs: in the list, in the account, and added from the page.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, isInOrder, scratch, start, tab, until, watched } from "./harness.mjs";

const said = `document.querySelector("#runs tbody tr .said")?.textContent ?? ""`;
const post = (what, text) => `fetch("/api/v1/${what}", { method: "POST", headers: { "Content-Type": "text/plain" }, body: ${JSON.stringify(text)} })
  .then((answer) => answer.status)`;

export async function notes(browser, program, shots) {
  const output = join(scratch, "notes");
  mkdirSync(output);
  const run = start(program, ["demo", "--sources", "2", "--rate", "100Hz", "--output", output, "--duration", "120s", "--control", "127.0.0.1:0"]);
  const page = await browser.newPage({ viewport: { width: 1200, height: 1600 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  await until(page, "the present run", `document.getElementById("note-run").value === "1"`);
  await page.getByLabel("Your name").fill("ada");
  const text = page.getByLabel("Text", { exact: true });
  const add = page.locator("#note-add");
  await text.fill("  target moved by 2 mm <b>");
  await text.press("Enter");
  await until(page, "the note", `${said} === "ada: target moved by 2 mm <b>"`);
  expect((await text.inputValue()) === "", "the note is still in the field");
  await page.screenshot({ path: join(shots, "notes.png"), fullPage: true });

  // An unknown run: the text stays, and the reason is shown.
  await page.getByLabel("Note on run").fill("77");
  await text.fill("of nothing");
  await add.click();
  await until(page, "why not", `document.getElementById("notice-text").textContent === "there is no run 77"`);
  expect((await text.inputValue()) === "of nothing", "what was not taken is gone");
  await page.getByRole("button", { name: "Close" }).first().click();
  await page.getByLabel("Note on run").fill("1");

  // A note of another user appears, too; while another operator has control, the field is disabled.
  expect((await page.evaluate(post("runs/1/notes?by=bob", "beam back"))) === 200, "bob may not say anything");
  await until(page, "what bob said", `${said} === "bob: beam back (and 1 earlier)"`, 15000);
  expect((await page.evaluate(post("operator/take?by=bob", ""))) === 200, "bob does not get control");
  await until(page, "bob's controls", `document.getElementById("note-add").disabled && document.getElementById("note-add").textContent === "bob has control"`);
  expect((await page.evaluate(post("operator/give?by=bob&to=ada", ""))) === 200, "bob does not give control to ada");
  await until(page, "ada's controls", `!document.getElementById("note-add").disabled`);

  await page.getByRole("button", { name: "Stop", exact: true }).click();
  const account = page.getByRole("button", { name: "Account of run 1", exact: true });
  await until(page, "the account", `!document.querySelector('#runs button[aria-label="Account of run 1"]').disabled`, 20000);
  await tab(page, "Run history");
  await account.click();
  await until(page, "both notes in the account", `["ada: target moved by 2 mm <b>", "bob: beam back"].every((words) => document.getElementById("run-account").textContent.includes(words))`);
  await isInOrder(page);
  // The unknown run, and an event that was requested while the run ended.
  expectQuiet(/ 404 .*\/runs\/77\/notes/, / 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: notes on runs appear in the list and the account, and are added from the page");
}
