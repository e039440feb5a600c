// What can be changed while a run goes on, by an operator who may; and a server that is another one meanwhile.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, isInOrder, scratch, start, state, tab, text, until, watched } from "./harness.mjs";

const row = (name) => `document.getElementById("parameter-${name}")?.closest("li")`;
const mark = (name, words) => `${row(name)}?.querySelector(".mark").textContent === "${words}"`;
const error = (name, words) => `${row(name)}.querySelector("[role=alert]").textContent.includes("${words}")`;
const isChanged = (name) => `${row(name)}.classList.contains("changed")`;
const focused = `document.activeElement.id`;

export async function parameters(browser, program, shots) {
  const output = join(scratch, "parameters");
  mkdirSync(output);
  const demo = (address) => start(program, ["demo", "--sources", "2", "--rate", "100Hz", "--output", output, "--duration", "300s", "--control", address]);
  let run = demo("127.0.0.1:0");
  const address = await run.line(/dashboard: (http:\S+)/);
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  const expectQuiet = watched(page);
  await page.goto(address);
  await page.getByLabel("Your name").fill("ada");
  await tab(page, "Parameters");
  await until(page, "running", state("running"));
  await until(page, "parameters", mark("timeouts.readout", "now 2s, as configured"));
  const again = async (number, whileGone = async () => {}) => {
    run.child.kill("SIGKILL");
    await run.ended;
    await until(page, "no answer", state("no answer"));
    await whileGone();
    run = demo(new URL(address).host);
    await until(page, "another run", `${text("run")} === "run ${number}"`, 20000);
    const others = `/run [^${number}]: /.test(${text("journal")})`;
    await until(page, "its journal alone", `${text("journal")}.includes("run ${number}: running") && !${others}`);
  };
  // Its journal is as long as that of the one before.
  await until(page, "the journal", `${text("journal")}.includes("run 1: running")`);
  await again(2);
  const field = (name) => page.getByLabel(name, { exact: true });

  await changesThem(page, field, shots);
  await keepsWhatIsWritten(page, field);
  await page.getByRole("button", { name: "Take control" }).click();
  await until(page, "ada's", `${text("holder")}.startsWith("You have control since ")`);
  await again(3, async () => {
    await field("timeouts.readout").press("Enter");
    await until(page, "it was not taken", error("timeouts.readout", "The server did not answer"));
  });
  await until(page, "ada's page says so", `${text("notice-text")} === "You no longer have control: control is free."`);
  await until(page, "its values", `${mark("timeouts.readout", "now 2s, as configured")} && ${mark("timeouts.builder", "now 5s, as configured")}`);
  expect((await field("timeouts.readout").inputValue()) === "4s", "what was written is gone");
  await field("timeouts.readout").press("Enter");
  await until(page, "applied to the other server", mark("timeouts.readout", "now 4s, configured: 2s"));

  await isSmall(page, shots);
  // The server was away, what did not fit, and an event that was not built.
  expectQuiet(/net::ERR_/, / 409 .*\/parameters/, / 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: parameters are changed from the keyboard, what does not fit is told beside the field, and what is written outlives a restart");
}

async function changesThem(page, field, shots) {
  await field("timeouts.readout").fill("3000ms");
  await field("timeouts.readout").press("Enter");
  await until(page, "a changed value", `${mark("timeouts.readout", "now 3s, configured: 2s")} && ${isChanged("timeouts.readout")}`);
  expect((await field("timeouts.readout").inputValue()) === "3s", "the field has another value than the run");
  await until(page, "the journal says so", `${text("journal")}.includes("timeouts.readout is 3s now; it was 2s, by ada")`);

  // All of what is written is applied, or nothing; why not stands beside one of them, which has the focus.
  await field("monitoring.interval").fill("1s");
  await field("timeouts.builder").fill("11s");
  await until(page, "what is not applied", `${text("parameters-edited")}.startsWith("2 not applied yet")`);
  await page.getByRole("button", { name: "Apply" }).click();
  await until(page, "why not", error("timeouts.builder", "timeouts.manager (10s) has to be longer than timeouts.builder (11s)"));
  expect((await page.evaluate(focused)) === "parameter-timeouts.builder", "the field that has to be another one is not found");
  expect((await field("timeouts.builder").getAttribute("aria-invalid")) === "true", "those who do not see it are not told");
  expect(await page.evaluate(mark("monitoring.interval", "now 100ms, as configured")), "a part of it is done");
  await page.locator("#panel-parameters").screenshot({ path: join(shots, "parameters.png") });
  await page.keyboard.press("Escape");
  expect((await field("timeouts.builder").inputValue()) === "5s", "Escape takes nothing back");
  await until(page, "no reproach", `!(${error("timeouts.builder", "has")})`);
  await field("monitoring.interval").press("Enter");
  await until(page, "the other one", mark("monitoring.interval", "now 1s, configured: 100ms"));
  await page.getByRole("button", { name: "Set back monitoring.interval to 100ms" }).focus();
  await page.keyboard.press("Enter");
  await until(page, "set back", `${mark("monitoring.interval", "now 100ms, as configured")} && !${isChanged("monitoring.interval")}`);
  await until(page, "the place is kept", `${focused} === "parameter-monitoring.interval"`);
}

// What is written in a field stays there, whatever others do meanwhile.
async function keepsWhatIsWritten(page, field) {
  const post = (what, options) => page.evaluate(`fetch("/api/v1/${what}", ${JSON.stringify(options)}).then((answer) => answer.status)`);
  await field("timeouts.readout").fill("4s");
  const body = JSON.stringify({ "timeouts.readout": "2500ms" });
  expect((await post("parameters?by=bob", { method: "PATCH", headers: { "Content-Type": "application/json" }, body })) === 200, "bob may not change it");
  await until(page, "what bob changed", mark("timeouts.readout", "now 2.5s, configured: 2s"));
  expect((await field("timeouts.readout").inputValue()) === "4s", "what was written is gone");
  expect((await post("operator/take?by=bob", { method: "POST" })) === 200, "bob does not get control");
  await until(page, "bob's alone", `${text("parameters-why")} === "bob has control: you cannot change parameters."`);
  expect(await field("timeouts.readout").isDisabled(), "a field of what bob alone may change");
  expect((await post("operator/give?by=bob", { method: "POST" })) === 200, "bob does not release control");
  await until(page, "control to be free", `${text("parameters-why")}.startsWith("Changes take effect at once")`);
  expect((await field("timeouts.readout").inputValue()) === "4s", "what was written is gone");
}

// On the smallest phone, in the dark.
async function isSmall(page, shots) {
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 320, height: 640 });
  await until(page, "the picture is narrow", `document.querySelector("#path svg").viewBox.baseVal.width < 500`);
  await isInOrder(page);
  await page.evaluate("window.scrollTo(0, 0)");
  await page.screenshot({ path: join(shots, "smallest.png") });
  await page.locator("#panel-parameters").screenshot({ path: join(shots, "smallest-parameters.png") });
}
