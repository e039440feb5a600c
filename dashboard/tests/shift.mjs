// A shift: start, watch, a front end that fails, an alarm, stop, a server that goes away.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, frontEnd, isInOrder, isPng, number, rowsOf, saved, scratch, start, state, tab, text, until, watched } from "./harness.mjs";

// Front ends of which two are programs that can be killed: without them events are incomplete, and go on.
const configuration = () => `version = 1
[run]
output = ${JSON.stringify(scratch)}
[timeouts]
readout = "500ms"
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
on_close = "wait"
[[source]]
id = 3
readout = "ru0"
format = "generic"
on_close = "wait"
`;

// The part of the page that may have moved by itself, times how far, over the whole shift: browsers call up to 0.1 good.
const MOST_JUMPS = 0.1;

const isRed = (source) =>
  `[...document.querySelectorAll("#sources tbody tr")].some((row) => row.cells[0].textContent === "${source}" && row.className === "silent")`;

export async function shift(browser, program, shots) {
  const file = join(scratch, "dashboard.toml");
  writeFileSync(file, configuration());
  const run = start(program, ["run", file, "--control", "127.0.0.1:0", "--idle"]);
  const address = await run.line(/dashboard: (http:\S+)/);
  const readout = await run.line(/ru0 listens on (\S+)/);
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
  const expectQuiet = watched(page);
  await page.goto(address);
  await until(page, "configured", state("configured"));
  await watchJumps(page);
  expect(await page.isDisabled("text=Pause"), "a pause is offered before there is a run");
  await page.fill("#who", "ada");

  const ends = { 2: frontEnd(readout, 2, 500), 3: frontEnd(readout, 3, 900) };
  await starts(page);
  await showsWhatGoesOn(page, join(shots, "light.png"));
  await raisesAlarm(page, ends[3], shots);
  ends[2].child.kill("SIGKILL");
  const took = await until(page, "the killed source is red", isRed(2), 5000);
  expect(!(await page.evaluate(isRed(1))), "the source that lives is red, too");
  console.log(`good: a killed source is red after ${took} ms`);

  await findsIncidents(page);
  await stops(page);
  await showsAccount(page);
  ends[3].child.kill("SIGKILL");
  await isInOrder(page);
  const jumps = await page.evaluate("window.jumps");
  expect(jumps < MOST_JUMPS, `the page jumps: ${jumps}`);
  await restarts(page, run, program, file, address);
  // The server was away; and before there was an incomplete event none could be shown.
  expectQuiet(/net::ERR_/, / 404 .*\/events\/sample/);
  await page.close();
}

// Adds up what moves without anybody having pressed anything.
async function watchJumps(page) {
  await page.evaluate(() => {
    window.jumps = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.jumps += entry.value;
    }).observe({ type: "layout-shift" });
  });
}

async function starts(page) {
  await page.click("text=Start");
  await until(page, "running", state("running"));
  await until(page, "events", `${number("built")} > 50`);
  expect((await page.evaluate(text("event-what"))) !== "No run is going on.", "the event display says that no run goes on");
  const before = await page.evaluate(number("built"));
  await until(page, "more events", `${number("built")} > ${before}`);
  await until(page, "a rate", `${number("event-rate")} > 50`);
  await until(page, "bandwidths", `/B\\/s$/.test(${text("bandwidth-in")}) && /B\\/s$/.test(${text("bandwidth-out")})`);
  await until(page, "live time", `/^\\d+ %$/.test(${text("live-time")})`);
  await until(page, "the journal", `document.querySelectorAll("#journal li").length > 2`);
  const texts = await page.$$eval("#journal li", (items) => items.map((item) => item.textContent));
  expect(new Set(texts).size === texts.length, `the journal says things twice: ${texts}`);
  expect(texts.some((one) => one.includes("by ada")), `the journal does not say who started the run: ${texts}`);
  console.log("good: it loads, starts a run by its button, and shows rising numbers");
}

// The picture, the plots, the ledger and the tables say the same as the server.
async function showsWhatGoesOn(page, shot) {
  await until(page, "what limits the run", `/limited/.test(${text("limit")}) && /limited/.test(${text("limit-said")})`);
  const picture = `document.querySelector("#path svg").getAttribute("aria-label")`;
  await until(page, "the data flow", `/3 sources: .*1 readout unit: [1-9].*1 builder unit: [1-9].*storage: [1-9]/.test(${picture})`);
  await until(page, "plots", `document.querySelectorAll(".plot canvas").length >= 5`);
  const plotted = `document.querySelector(".plot").getAttribute("aria-label")`;
  await until(page, "a plot of the rate", `/Event rate, now: events [1-9]/.test(${plotted})`);
  const drawn = await page.evaluate(() => {
    const canvas = document.querySelector(".plot canvas");
    const colours = new Set(new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer));
    return colours.size;
  });
  expect(drawn > 3, "the plot is empty");
  await page.click("text=7 days");
  await until(page, "seven days", `/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)|now/.test(${plotted}) && document.querySelector('[data-span="604800"]').getAttribute("aria-pressed") === "true"`);
  await page.click("text=10 minutes");
  const equation = await page.$eval("#ledger tr", (row) => {
    const of = (cell) => Number(cell.textContent.replace(/,/g, ""));
    return [of(row.cells[1]), [...row.cells[2].querySelectorAll("b")].reduce((sum, part) => sum + of(part), 0)];
  });
  expect(equation[0] > 0 && Math.abs(equation[0] - equation[1]) <= 1 + 0.1 * equation[0], `the ledger: ${equation}`);
  await until(page, "nodes", `[...document.querySelectorAll("#nodes tbody tr")].map((row) => row.cells[0].textContent).join() === "ru0,bu0"`);
  await isInOrder(page);
  await page.screenshot({ path: shot, fullPage: true });
  console.log("good: the picture, the plots, the ledger and the tables show what goes on");
}

// A front end that hangs: its alarm is seen, heard, acknowledged by name, and over when it goes on.
async function raisesAlarm(page, frontEnd, shots) {
  await page.click("#sound");
  await until(page, "sound is on", `${text("sound")} === "Turn sound off"`);
  frontEnd.child.kill("SIGSTOP");
  const alarm = `[...document.querySelectorAll("#alarms li")].find((line) => line.textContent.includes("source silent"))`;
  const line = page.locator("#alarms li", { hasText: "source silent" });
  await until(page, "an alarm", `${alarm} !== undefined`, 15000);
  await until(page, "the alarm is heard", `Number(document.body.dataset.sounded) > 1`);
  expect(await page.evaluate(isRed(3)), "the source that hangs is not red");
  await showsSilence(page);
  await page.screenshot({ path: join(shots, "alarm.png") });
  await displaysEvents(page, join(shots, "event.png"));
  await line.getByRole("button", { name: "Acknowledge" }).focus();
  await page.keyboard.press("Enter");
  await until(page, "the alarm is acknowledged", `${alarm}?.textContent.includes("acknowledged by ada")`);
  expect(await page.evaluate(`${alarm}.contains(document.activeElement)`), "the keyboard focus has lost its place");
  frontEnd.child.kill("SIGCONT");
  // The problem counts as current for ten seconds after the last silence.
  await until(page, "the alarm is over", `${alarm} === undefined`, 30000);
  // The run has incomplete events and late fragments now: their alarms stay until they are acknowledged.
  const open = page.locator("#alarms").getByRole("button", { name: "Acknowledge" });
  await until(page, "alarms that stay", `document.querySelector("#alarms").textContent.includes("events incomplete")`);
  for (let left = 10; left > 0 && await open.count() > 0; left -= 1) {
    await open.first().click();
    await page.waitForTimeout(1000);
  }
  await until(page, "all are acknowledged", `[...document.querySelectorAll("#alarms li")].every((line) => line.textContent.includes("acknowledged by ada") || line.className === "none")`);
  console.log("good: an alarm is seen and heard, acknowledged from the keyboard, and goes");
}

// A page that was just opened shows for how long a source has been silent, as the server says.
async function showsSilence(page) {
  const silence = await page.evaluate(`fetch("/api/v1/sources").then((answer) => answer.json()).then((all) => all.find(({ id }) => id === 3).silent_s)`);
  const other = await page.context().browser().newPage();
  await other.goto(page.url());
  const status = `document.querySelectorAll("#sources tbody tr")[2]?.cells[1].textContent ?? ""`;
  await until(other, "the silence", `/^silent for/.test(${status}) && Number(/[\\d.]+/.exec(${status})[0]) >= ${Math.floor(silence)}`);
  await other.close();
}

// A sampled event has a bar for each source; the one that hangs is missing; another one's bytes are shown from the keyboard.
async function displaysEvents(page, shot) {
  await page.locator("#event-kind").scrollIntoViewIfNeeded();
  await page.selectOption("#event-kind", "incomplete");
  const bars = (what) => `[...document.querySelectorAll(".event-bar")].filter((bar) => ${what}).map((bar) => bar.dataset.source).join()`;
  await until(page, "a bar for each source", `${bars("true")} === "1,2,3"`);
  await until(page, "the source that hangs is missing", `${bars(`bar.classList.contains("missing")`)} === "3"`);
  const heights = await page.$$eval(".event-bar:not(.missing) i", (sticks) => sticks.map((stick) => stick.offsetHeight));
  expect(heights.every((height) => height > 1), `bars of ${heights} pixels`);
  await page.focus(".event-bar");
  await page.keyboard.press("ArrowRight");
  const detail = text("event-detail");
  await until(page, "what source 2 sent", `/^Source 2/.test(${detail}) && /number\\d/.test(${detail}) && /000000  ([0-9a-f]{2} ){8}/.test(${detail})`);
  expect(!(await page.isChecked("#event-follow")), "what is read runs away");
  await page.keyboard.press("ArrowRight");
  await until(page, "why source 3 is missing", `/^Source 3No data in this event: [a-z]/.test(${detail})`);
  await page.keyboard.press("ArrowLeft");
  expect(/^Fragments 2 · mean /.test(await page.evaluate(text("event-statistics"))), "the statistics of an event");
  const tallest = () => page.$$eval(".event-bar:not(.missing) i", (sticks) => sticks.map((stick) => stick.offsetHeight));
  const linear = await tallest();
  await page.check("#event-log");
  expect(Math.min(...await tallest()) > Math.min(...linear), "a logarithmic axis does not raise small bars");
  const rows = rowsOf(await saved(page, "#event-csv"));
  expect(rows.length === 4 && rows[3][1] === "3" && rows[3][4] === "true", `the file: ${JSON.stringify(rows)}`);
  expect(isPng(await saved(page, "#event-png")), "the file is not a PNG");
  await page.locator("#event-detail").scrollIntoViewIfNeeded();
  await page.locator("#panel-event").screenshot({ path: shot });
  console.log("good: an event is displayed source by source");
}

async function findsIncidents(page) {
  await until(page, "incidents", `document.querySelectorAll("#incidents tbody tr").length > 0`);
  await page.fill("#incident-search", "connection 2");
  await until(page, "the lost connection", `/1connection lostsource 2/.test(document.querySelector("#incidents tbody").textContent)`);
  await page.fill("#incident-search", "nothing of the kind");
  await until(page, "nothing else", `document.querySelectorAll("#incidents tbody tr").length === 0`);
  await page.fill("#incident-search", "");
  console.log("good: incidents are found by their words");
}

async function stops(page) {
  await page.click("text=Pause");
  await until(page, "paused", state("paused"));
  await page.click("text=Resume");
  await until(page, "running again", state("running"));
  await asksBeforeReset(page);
  await page.focus("text=Stop");
  await page.keyboard.press("Enter");
  await until(page, "stopped", `document.getElementById("state").textContent.startsWith("configured")`);
  await until(page, "the next run can start", `!document.querySelector("[data-command=start]").disabled`);
  console.log("good: pause, resume, and stop from the keyboard");
}

// Reset is not among the commands of a run, says what is lost, and Enter alone does nothing.
async function asksBeforeReset(page) {
  const shown = await page.locator("#commands button:visible").allTextContents();
  expect(shown.join() === "Start,Pause,Stop", `commands of a run: ${shown}`);
  await page.click("#reset");
  const dialog = page.getByRole("dialog");
  expect(/^Run \d+ ends at once\..* lost: now [\d,]+ events? and [\d,]+ fragments? in flight\./.test(await page.evaluate(text("question-text"))), "what is lost is not said");
  await page.keyboard.press("Enter");
  expect(!(await dialog.isVisible()) && await page.evaluate(state("running")), "Enter resets");
}

async function showsAccount(page) {
  await until(page, "the run is listed", `[...document.querySelectorAll("#runs tbody button")].some((button) => !button.disabled)`);
  await tab(page, "Run history");
  await page.click("#runs tbody button:not([disabled])");
  await until(page, "its account", `/ledgerbalanced/.test(${text("run-account")})`);
  console.log("good: the run is listed, and its account is balanced");
}

// The server goes away and comes back at the same address: the page says so, and goes on by itself.
async function restarts(page, run, program, file, address) {
  run.child.kill("SIGKILL");
  await run.ended;
  await until(page, "the page says that there is no answer", state("no answer"));
  expect(await page.evaluate(`/does not answer since \\d\\d:/.test(${text("notice-text")})`), "the page does not say since when");
  const again = start(program, ["run", file, "--control", new URL(address).host, "--idle"]);
  await again.line(/dashboard: (http:\S+)/);
  await until(page, "connected again", state("configured"), 20000);
  await until(page, "the page says so", `${text("notice-text")} === "Connected again."`);
  expect(!(await page.evaluate(`document.body.classList.contains("stale")`)), "what is new looks old");
  again.child.kill("SIGINT");
  await again.ended;
  console.log("good: it connects again after a restart, and says so");
}
