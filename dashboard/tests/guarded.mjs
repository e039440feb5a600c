// A server that wants its token, and a browser that keeps nothing.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, number, oneSource, scratch, start, state, text, until, watched } from "./harness.mjs";

const TOKEN = "0123456789abcdef";

export async function guarded(browser, program, shots) {
  const file = join(scratch, "guarded.toml");
  writeFileSync(file, oneSource(join(scratch, "guarded")));
  const token = join(scratch, "token");
  writeFileSync(token, `${TOKEN}\n`, { mode: 0o600 });
  const run = start(program, ["run", file, "--control", "127.0.0.1:0", "--control-token", token]);
  const address = await run.line(/dashboard: (http:\S+)/);
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  const expectQuiet = watched(page);
  await page.goto(address);
  await until(page, "running", state("running"));
  const pause = page.getByRole("button", { name: "Pause", exact: true });
  const dialog = page.getByRole("dialog");

  // The page goes on below the question: what it asks for may take a while to be found.
  await pause.click();
  await until(page, "a question", `document.getElementById("question").open`);
  const built = await page.evaluate(number("built"));
  await until(page, "events below it", `${number("built")} > ${built}`);
  await dialog.screenshot({ path: join(shots, "token.png") });
  // What no request can carry is not taken, and asked for before anything is sent.
  await page.getByLabel("Token", { exact: true }).fill("grüne straße 0123456789");
  await page.keyboard.press("Enter");
  expect(await dialog.isVisible(), "a token that no request can carry is taken");
  await page.getByLabel("Token", { exact: true }).fill(`${TOKEN}0`);
  await page.keyboard.press("Enter");
  await until(page, "that it was refused", `${text("question-text")} === "The server refused this token."`);
  await page.keyboard.press("Escape");
  await until(page, "no question", `!document.getElementById("question").open`);
  await until(page, "nothing was done", `${state("running")} && !document.querySelector("[data-command=pause]").disabled`);

  await pause.click();
  await page.getByLabel("Token", { exact: true }).fill(TOKEN);
  await page.keyboard.press("Enter");
  await until(page, "paused", state("paused"));
  await page.getByRole("button", { name: "Resume", exact: true }).click();
  await until(page, "running again, without a question", state("running"));
  expectQuiet(/ 401 /);
  await page.close();
  await keepsNothing(browser, address);
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: the token is asked for until it is the right one, while the page goes on, also in a browser that keeps nothing");
}

// Where a browser refuses to keep anything, all of it works, and is asked for once.
async function keepsNothing(browser, address) {
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  await page.addInitScript(() => {
    for (const kind of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, kind, { get() { throw new DOMException("denied", "SecurityError"); } });
    }
  });
  const expectQuiet = watched(page);
  await page.goto(address);
  await until(page, "running", state("running"));
  await page.getByLabel("Your name").fill("ada");
  await page.getByRole("button", { name: "Take control" }).click();
  await page.getByLabel("Token", { exact: true }).fill(TOKEN);
  await page.keyboard.press("Enter");
  await until(page, "ada's", `${text("holder")}.startsWith("You have control since")`);
  await page.getByRole("button", { name: "Release control" }).click();
  await until(page, "control to be free", `${text("holder")}.startsWith("Control is free")`);
  expectQuiet(/ 401 /);
  await page.close();
}
