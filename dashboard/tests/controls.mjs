// Control: two operators with a page each.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, isInOrder, scratch, start, state, text, until, watched } from "./harness.mjs";

const holder = (words) => `${text("holder")}.startsWith("${words}")`;
const notice = (words) => `!document.getElementById("notice").hidden && ${text("notice-text")}.includes("${words}")`;
const disabled = (...selectors) => selectors.map((selector) => `document.querySelector("${selector}").disabled`).join(" && ");
const enabled = (selector) => `!document.querySelector("${selector}").disabled`;

// Views can be kept from the page, so that it does not know yet what is so already.
const holdViews = () => {
  const Real = window.EventSource;
  window.EventSource = class extends Real {
    addEventListener(name, hear) {
      super.addEventListener(name, (event) => { if (!window.seesNothing) hear(event); });
    }
  };
};

async function open(browser, address, name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  await page.addInitScript(holdViews);
  const expectQuiet = watched(page);
  await page.goto(address);
  await until(page, "control is free", holder("Control is free: all operators may send commands."));
  await page.getByLabel("Your name").fill(name);
  return { context, page, expectQuiet };
}

export async function controls(browser, program, shots) {
  const output = join(scratch, "controls");
  mkdirSync(output);
  const run = start(program, ["demo", "--sources", "3", "--rate", "100Hz", "--output", output, "--duration", "300s", "--control", "127.0.0.1:0"]);
  const address = await run.line(/dashboard: (http:\S+)/);
  const [ada, bob] = [await open(browser, address, "ada"), await open(browser, address, "bob", { colorScheme: "dark" })];
  await until(ada.page, "running", state("running"));
  await handsThemOver(ada.page, bob.page, shots);
  await meetsInARace(ada.page);
  await hasNoName(bob.page);
  await hasALongName(ada.page, bob.page);
  // Commands that were not heard: bob's and ada's.
  ada.expectQuiet(/ 409 .*\/commands\/pause/);
  bob.expectQuiet();
  await ada.context.close();
  await bob.context.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: control is taken, given, and taken by force, and an operator without control sees why commands are refused");
}

async function handsThemOver(ada, bob, shots) {
  expect(await ada.isDisabled("#give-up") && await ada.isDisabled("#force"), "control that is free can be given up, or taken by force");
  await ada.focus("#take");
  const before = await ada.locator("main").boundingBox();
  await ada.keyboard.press("Enter");
  await until(ada, "ada holds them", holder("You have control since "));
  // Nothing can be done elsewhere, and it is said why.
  await until(bob, "bob sees who does", `/^ada has control since \\d\\d:\\d\\d:\\d\\d: other operators can only watch\\.$/.test(${text("holder")})`);
  await bob.getByRole("searchbox", { name: "Show" }).fill("1");
  await until(bob, "parameters", `document.querySelector("#parameter-list input") !== null`);
  for (const what of ["[data-command=pause]", "[data-command=stop]", "#source-mask", "#note-add", "#parameter-list input", "#take", "#give-up", "#give-to"]) {
    expect(await bob.isDisabled(what), `bob may use ${what}`);
  }
  for (const why of ["mask-why", "note-add", "parameters-why"]) {
    expect((await bob.evaluate(text(why))).includes("ada has control"), `${why} does not say why`);
  }
  await bob.evaluate("window.scrollTo(0, 0)");
  await bob.screenshot({ path: join(shots, "controls-dark.png") });
  expect(await ada.isEnabled("[data-command=pause]"), "who has control may not use them");
  const after = await ada.locator("main").boundingBox();
  expect(before.y === after.y, `the page jumps from ${before.y} to ${after.y}`);

  // Passed to another operator from the keyboard, whose page says so; then taken back by force, after a question.
  await ada.focus("#give-to");
  await ada.keyboard.press("Enter");
  await ada.getByLabel("To which operator").fill("bob");
  await ada.keyboard.press("Enter");
  await until(bob, "bob's page says so", `${holder("You have control since ")} && ${notice("You were given control.")}`);
  await until(ada, "ada sees it", `${holder("bob has control since ")} && ${disabled("[data-command=pause]", "#give-up")}`);
  await ada.screenshot({ path: join(shots, "controls.png") });
  await ada.getByRole("button", { name: "Take by force" }).click();
  expect((await ada.getByRole("dialog").textContent()).includes("Take control from bob?"), "it is not asked about");
  // A mere Enter takes nothing from anybody.
  await ada.keyboard.press("Enter");
  expect(!(await ada.getByRole("dialog").isVisible()) && await ada.evaluate(holder("bob has control")), "an Enter takes them");
  await ada.getByRole("button", { name: "Take by force" }).click();
  await ada.getByRole("dialog").screenshot({ path: join(shots, "controls-force.png") });
  await ada.getByRole("dialog").getByRole("button", { name: "Take by force" }).click();
  await until(bob, "bob's page says that control is gone", `${holder("ada has control since ")} && ${notice("ada has control now")}`);
  await until(ada, "ada holds them again", `${holder("You have control since ")} && ${enabled("[data-command=pause]")}`);
  expect(await ada.evaluate(`document.activeElement.id`) === "take", "who goes on with the keyboard has lost the place");
  const journal = `[...document.querySelectorAll("#journal li")].some((entry) => entry.textContent.includes("ada takes control from bob by force"))`;
  await until(bob, "it stands in the journal", journal);
}

// Another operator takes control, and the command is given before the page knows.
async function meetsInARace(ada) {
  const take = `fetch("/api/v1/operator/take?by=eve&force=true", { method: "POST" }).then((answer) => answer.status)`;
  await ada.evaluate("window.seesNothing = true");
  expect((await ada.evaluate(take)) === 200, "eve does not get control");
  await ada.getByRole("button", { name: "Pause", exact: true }).click();
  await until(ada, "why it was not heard", notice("eve "));
  await ada.evaluate("window.seesNothing = false");
  await until(ada, "the page knows", `${holder("eve has control")} && ${disabled("[data-command=pause]")}`);
  await until(ada, "the run goes on", state("running"));
  // Under the name of the operator who has control, it is one's own.
  await ada.getByLabel("Your name").fill("eve");
  await until(ada, "eve's own", `${holder("You have control since ")} && ${enabled("[data-command=pause]")}`);
  await ada.getByRole("button", { name: "Release control" }).click();
  await until(ada, "control to be free", `${holder("Control is free")} && ${enabled("[data-command=pause]")} && ${disabled("#give-up")}`);
}

async function hasNoName(bob) {
  await until(bob, "control to be free", holder("Control is free"));
  expect(await bob.locator("#notice").isHidden(), "a notice says that ada has control, who released it");
  await bob.getByLabel("Your name").fill("");
  await bob.getByRole("button", { name: "Take control" }).click();
  await until(bob, "a name is needed", notice("Enter your name first"));
  expect(await bob.evaluate(`document.activeElement.id`) === "who", "the place to write it in has to be found");
  await bob.getByLabel("Your name").fill("bob");
  await bob.reload();
  await until(bob, "the name is remembered", `document.getElementById("who").value === "bob"`);
}

// The longest name there may be, on the smallest phone.
async function hasALongName(ada, bob) {
  const long = "w".repeat(64);
  await ada.getByLabel("Your name").fill(`${long}w`);
  await ada.getByRole("button", { name: "Take control" }).click();
  await until(ada, "it is her own", holder("You have control since "));
  await until(bob, "whose they are", `${holder(`${long} has control`)} && ${text("note-add")}.startsWith("${long} ")`);
  for (const page of [ada, bob]) {
    await isInOrder(page);
    await page.setViewportSize({ width: 320, height: 640 });
    await until(page, "the picture is narrow", `document.querySelector("#path svg").viewBox.baseVal.width < 500`);
    await isInOrder(page);
  }
}
