// Parts of the page by themselves, with made-up views of what a run rarely shows, such as a full stage of the data flow.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, oneSource, scratch, start, state, until, watched } from "./harness.mjs";

// A view of a run in which builder unit 1 is away, the disk of the other one is busy, and sources are held back.
const troubled = {
  state: "running",
  run: 4,
  limit: { kind: "disk", sentence: "rate limited by builder unit bu0: disk writing 97 % busy" },
  ledger: { events: { accepted: 30, rejected: 10 } },
  quality: { state: "good", is_current: true, problems: [] },
  sources: [1, 2].map((id) => ({ id, received: 10, is_connected: true, has_ended: false })),
  nodes: [
    { name: "ru0", label: "crate-1 (ru0)", role: "readout", connected: true },
    { name: "bu0", label: "bu0", role: "builder", connected: true },
    { name: "bu1", label: "bu1", role: "builder", connected: false },
  ],
  rates: {
    bytes_in_per_second: 2e6, bytes_to_disk_per_second: 1e6,
    sources: [{ source: 1, back_pressure_share: 0.2 }, { source: 2, back_pressure_share: 0.95 }],
    nodes: [
      { node: "ru0", rate_hz: 12345, pool_share: 0.7, link_wait_share: 0.1 },
      { node: "bu0", rate_hz: 40, full_share: 0.92, filter_busy_share: 0.3, disk_busy_share: 0.97, disk_wait_share: 0.6 },
      { node: "bu1", rate_hz: 0 },
    ],
  },
};

const same = (what, found, wanted) =>
  expect(JSON.stringify(found) === JSON.stringify(wanted), `${what}: ${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);

export async function parts(browser, program) {
  const run = start(program, ["demo", "--sources", "1", "--rate", "1Hz", "--duration", "60s", "--output", scratch, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage();
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));

  const numbers = await page.evaluate(async () => {
    const { ago, bytes, compact, span } = await import("/format.js");
    return [bytes(999), bytes(1234), bytes(45.6e6), bytes(123e9), compact(9999), compact(12345), compact(4.56e6), span(90061), ago(4.21), ago(600)];
  });
  same("numbers", numbers, ["999 B", "1.23 kB", "45.6 MB", "123 GB", "9,999", "12.3 k", "4.56 M", "1 d 01:01:01", "4.2 s", "10 min"]);

  const meant = await page.evaluate(async () => {
    const { isMeant } = await import("/sources.js");
    const source = { id: 27, readout: "ru1", status: "silent for 4 s" };
    return ["", "27", "7", "20-29", "28-30", "1, ru1", "ru10", "silent", "sending 27"].map((filter) => isMeant(source, filter));
  });
  same("sources that are meant", meant, [true, true, false, true, false, true, false, true, true]);

  const dumped = await page.evaluate(async () => (await import("/events.js")).dump("41427f00ff".repeat(4)));
  same("a dump", dumped, [
    `000000  41 42 7f 00 ff 41 42 7f 00 ff 41 42 7f 00 ff 41  AB...AB...AB...A`,
    `000010  ${"42 7f 00 ff".padEnd(47)}  B...`,
  ].join("\n"));

  const told = await page.evaluate(async (live) => {
    (await import("/path.js")).show(live);
    const svg = document.querySelector("#path svg");
    const kinds = [...svg.querySelectorAll(".stage")].map((stage) => stage.getAttribute("class").replace("stage ", ""));
    return { label: svg.getAttribute("aria-label"), kinds, waits: [...svg.querySelectorAll(".wait")].map((wait) => wait.textContent) };
  }, troubled);
  same("colours of the data flow", told.kinds, ["level-0", "level-1", "away", "level-0", "level-2"]);
  same("what has to wait", told.waits, ["waits 95 %", "waits 10 %", "", "waits 60 %"]);
  for (const words of ["12.3 k fragments/s, buffers 70 %: busy", "bu1 not connected", "75 % accepted", "disk busy 97 %: full", "waits 95 % of the time"]) {
    expect(told.label.includes(words), `the picture does not say "${words}" to those who do not see it: ${told.label}`);
  }
  await colours(page);
  await saysOnce(page);
  expectQuiet();
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: the data flow names and colours what is busy, full, away and waiting; sources are picked by words");
}

// An alarm of an earlier run has its number; a silent source is described once.
async function saysOnce(page) {
  const shown = (live) => page.evaluate(async (view) => {
    (await import("/alarms.js")).show(view);
    return [document.getElementById("limit").textContent, document.querySelector("#alarms b")?.textContent];
  }, live);
  const alarm = { name: "events_incomplete", severity: "critical", state: "latched", sentence: "", run: 2, known_by: null };
  const quality = { problems: [{ kind: "source_silent", source: 3, is_current: true }] };
  const limit = { kind: "source_silent", sentence: "veto (source 3): no data for 9.0 s" };
  same("after a run", await shown({ state: "configured", run: 3, limit: null, quality: { problems: [] }, alarms: [alarm] }),
    ["No run is going on.", "critical: events incomplete in run 2, over, not acknowledged"]);
  same("in a run", await shown({ state: "running", run: 2, limit, quality, alarms: [{ ...alarm, state: "active" }] }),
    ["veto (source 3) sends nothing, see Data quality", "critical: events incomplete"]);
  const shelved = (live) => page.evaluate(async (view) => {
    (await import("/alarms.js")).show(view);
    const line = document.getElementById("shelved");
    return [line.hidden, line.textContent];
  }, live);
  const calm = { state: "running", run: 2, limit, quality, alarms: [] };
  same("a shelved alarm", await shelved({ ...calm, shelved: [{ name: "rate_low", shelved_by: "ada" }] }), [false, "1 shelvedShow rate low"]);
  same("none", (await shelved({ ...calm, shelved: [] }))[0], true);
}

// The data flow is green only while events are whole, and red where they are not.
async function colours(page) {
  const calm = { ...troubled, limit: null, nodes: troubled.nodes.slice(0, 2), rates: { ...troubled.rates, sources: [], nodes: [] } };
  const counts = (rate) => ({ total: 7, per_second: rate });
  const bad = { state: "incomplete", is_current: true, incomplete: counts(3.2), doubtful: counts(0) };
  const problem = { kind: "source_out_of_step", source: 2, is_current: true };
  const shown = (live) => page.evaluate(async (view) => {
    (await import("/path.js")).show(view);
    const svg = document.querySelector("#path svg");
    const colour = (name) => {
      const probe = document.createElement("span");
      probe.style.color = `var(${name})`;
      document.body.append(probe);
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    };
    const names = Object.fromEntries(["--good", "--quiet", "--bad"].map((name) => [colour(name), name.slice(2)]));
    const strokes = [...svg.querySelectorAll(".stage")].map((stage) => names[getComputedStyle(stage).stroke]);
    const cells = [...svg.querySelector("g g").children].map((cell) => names[getComputedStyle(cell).fill]);
    return { strokes, cells, label: svg.getAttribute("aria-label") };
  }, live);
  same("a good run", (await shown(calm)).strokes, ["good", "good", "good", "good", "good"]);
  same("a run before its first event", (await shown({ ...calm, quality: { state: "no_data", is_current: true, problems: [] } })).strokes, Array(5).fill("quiet"));
  same("no run", (await shown({ ...calm, state: "configured" })).strokes, Array(5).fill("quiet"));
  const incomplete = await shown({ ...calm, quality: { ...bad, problems: [problem] } });
  same("incomplete events", incomplete.strokes, ["bad", "quiet", "bad", "quiet", "quiet"]);
  same("sources that send, and one with a problem", incomplete.cells, ["good", "bad"]);
  for (const words of ["1 with problems", "3.2 incomplete / s"]) expect(incomplete.label.includes(words), `no "${words}" in: ${incomplete.label}`);
  const over = { ...calm, quality: { ...bad, is_current: false, problems: [{ ...problem, is_current: false }] } };
  same("a problem that is over", (await shown(over)).strokes, ["good", "good", "good", "good", "good"]);
}

// A start that needs run information.
export async function fields(browser, program) {
  const file = join(scratch, "fields.toml");
  writeFileSync(file, oneSource(scratch, `required_fields = ["beam", "shifter"]`));
  let run = start(program, ["run", file, "--control", "127.0.0.1:0", "--idle"]);
  const page = await browser.newPage();
  const expectQuiet = watched(page);
  const address = await run.line(/dashboard: (http:\S+)/);
  await page.goto(address);
  await until(page, "configured", state("configured"));
  // What another operator's command came to is a line, not a notice.
  const refused = await page.evaluate(`fetch("/api/v1/commands/start?by=bob", { method: "POST" }).then((answer) => answer.status)`);
  expect(refused === 409, `a start without run information: ${refused}`);
  await until(page, "the line", `/^Last error: .*by bob/.test(document.getElementById("trouble").textContent)`);
  expect(await page.locator("#notice").isHidden(), "a notice of what another operator did");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByLabel("beam").fill("120 GeV");
  await page.getByLabel("shifter").fill("ada");
  // The server goes away meanwhile: what is written is not taken, and it is there again when the server is.
  run.child.kill("SIGKILL");
  await run.ended;
  await until(page, "no answer", state("no answer"));
  await page.keyboard.press("Enter");
  await until(page, "it was not taken", `document.getElementById("notice-text").textContent.startsWith("The server did not answer")`);
  run = start(program, ["run", file, "--control", new URL(address).host, "--idle"]);
  await until(page, "configured again", state("configured"), 20000);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  same("what was written", [await page.getByLabel("beam").inputValue(), await page.getByLabel("shifter").inputValue()], ["120 GeV", "ada"]);
  await page.keyboard.press("Enter");
  await until(page, "running", state("running"));
  same("what is said of the run", await page.getByText(/^run \d+$/).first().getAttribute("title"), "beam=120 GeV\nshifter=ada");
  expectQuiet(/net::ERR_/, / 409 .*\/commands\/start/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: what has to be said of a run is asked for when it is started, and thought better of with Escape, and what was written outlives the server");
}

// Rows are selected with the mouse, from the keyboard, and by touch.
async function selects(page, mask) {
  const why = (words) => `document.getElementById("mask-why").textContent === "${words}"`;
  const row = (index) => page.locator("#sources tbody tr").nth(index);
  await row(0).locator("td").nth(5).click();
  await until(page, "a selected row", why("1 selected"));
  expect(await mask.isEnabled(), "a selected source cannot be masked");
  await row(1).getByRole("checkbox").focus();
  await page.keyboard.press("Space");
  await until(page, "two selected rows", why("2 selected"));
  await row(1).locator("label span").click();
  await until(page, "one again", why("1 selected"));
  await page.getByRole("button", { name: "Clear selection" }).click();
  await until(page, "no selected row", why("select rows to mask sources"));
  expect(await mask.isDisabled(), "no source is selected, and one can be masked");
  const phone = await page.context().browser().newContext({ viewport: { width: 390, height: 844 }, hasTouch: true });
  const touched = await phone.newPage();
  await touched.goto(page.url());
  await until(touched, "sources", `document.querySelectorAll("#sources tbody tr").length === 3`);
  await touched.locator("#sources tbody tr").nth(2).locator("td").nth(1).tap();
  await until(touched, "a touched row", why("1 selected"));
  await phone.close();
}

// Sources that are taken out of a run, and in again, while it goes on.
export async function masks(browser, program) {
  const run = start(program, ["demo", "--sources", "3", "--rate", "200Hz", "--duration", "60s", "--output", scratch, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage();
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  const mask = page.getByRole("button", { name: "Mask", exact: true });
  await until(page, "sources", `document.querySelectorAll("#sources tbody tr").length === 3`);
  expect(await mask.isDisabled(), "all sources can be masked at once");
  await selects(page, mask);
  const id = await page.locator("#sources tbody tr").last().locator("td").first().textContent();
  await page.getByRole("searchbox", { name: "Show" }).fill(id);
  const status = (words) => `document.querySelector("#sources tbody tr").cells[1].textContent === "${words}"`;
  await until(page, "one that sends", status("sending"));
  await mask.click();
  await page.getByRole("dialog").getByRole("button", { name: "Mask", exact: true }).click();
  await until(page, "masked", status("masked"));
  await until(page, "the first screen says that a source is masked", `
    document.querySelector("#path svg").getAttribute("aria-label").includes("1 masked") &&
    document.querySelectorAll("#path rect.masked").length === 1 &&
    document.getElementById("quality-sentence").textContent.includes("masked: ")`);
  const built = await page.evaluate("fetch('/api/v1/ledger').then((answer) => answer.json()).then((ledger) => ledger.events.built)");
  await until(page, "events without it", `fetch("/api/v1/ledger").then((answer) => answer.json()).then((ledger) => ledger.events.built > ${built + 50})`);
  await page.getByRole("button", { name: "Unmask" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Unmask", exact: true }).click();
  await until(page, "one that sends again", status("sending"));
  const told = await page.evaluate("fetch('/api/v1/masks').then((answer) => answer.json())");
  same("what is told of masks", [told.length, String(told[0].source), told[0].is_masked, told[0].in_run, told[0].events.length], [1, id, false, "takes_part", 1]);
  expect(Number(told[0].events[0].to) > Number(told[0].events[0].from) + 50, `it was masked for no events: ${JSON.stringify(told)}`);
  await page.getByRole("button", { name: "Restart" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Restart", exact: true }).click();
  await page.getByText(new RegExp(`Source ${id} is out from event \\d+ on, until it sends\\.`)).waitFor();
  await until(page, "one that sends after it was begun anew", status("sending"));
  const again = await page.evaluate("fetch('/api/v1/masks').then((answer) => answer.json())");
  same("what is told of a source that was begun anew", [again[0].is_masked, again[0].events.length], [false, 2]);
  expectQuiet();
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: sources are taken out of a run and in again, at once or later, and the run goes on");
}
