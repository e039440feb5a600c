// Data quality: what an operator sees of a source that never sends, of problems that last, and of problems that are over.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, oneSource, scratch, start, state, text, until, watched } from "./harness.mjs";

// A second source, which never connects.
const configuration = () => `${oneSource(scratch).replace('name = "ru0"', 'name = "ru0"\nlisten = "127.0.0.1:0"')}
[[source]]
id = 2
readout = "ru0"
format = "generic"
[timeouts]
readout = "500ms"
`;

const second = 1e9;
const noon = new Date().setHours(12, 3, 5, 0) * 1e6;
const problem = (kind, source, isCurrent, sentence) => ({
  kind, source, count: 2049, since_ns: noon, last_ns: noon + 60 * second, is_current: isCurrent, sentence,
});
const restarted = (isCurrent) => ({
  state: "incomplete", is_current: isCurrent, sentence: "boardA (source 7) restarted counting at event 600",
  complete: { total: 600, per_second: isCurrent ? 0 : 100 }, incomplete: { total: 2049, per_second: isCurrent ? 3.2 : 0 }, doubtful: { total: 0, per_second: 0 },
  problems: [problem("source_restarted", 7, isCurrent, "boardA (source 7) restarted counting at event 600"), problem("checksums_wrong", 8, false, "boardB (source 8): 2,049 fragments with a wrong checksum")],
});

export async function quality(browser, program, shots) {
  const file = join(scratch, "quality.toml");
  writeFileSync(file, configuration());
  const run = start(program, ["run", file, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  await until(page, "running", state("running"));
  await until(page, "incomplete events", `document.getElementById("quality").className === "quality bad" && ${text("quality-state")} === "Incomplete"`, 20000);
  const status = `document.querySelector("#sources tbody tr:nth-child(2)").cells[1].textContent`;
  await until(page, "the source that never sends", `${status} === "never sent"`);
  await until(page, "the picture", `/2 sources: .*1 never sent.*incomplete/.test(document.querySelector("#path svg").getAttribute("aria-label"))`);
  await until(page, "what is wrong", `document.querySelectorAll("#problems .current").length > 0`);
  await until(page, "since when", `/^since \\d\\d:\\d\\d:\\d\\d/.test(document.querySelector("#problems .when").textContent)`);
  expect((await page.title()).startsWith("incomplete data"), "the title does not say it");
  const help = await page.locator("#problems a").first().getAttribute("href");
  expect((await page.evaluate(`fetch("${help}").then((answer) => answer.status)`)) === 200, `no manual at ${help}`);
  await isOnFirstScreen(page);
  await page.screenshot({ path: join(shots, "quality.png") });
  await page.setViewportSize({ width: 390, height: 844 });
  await isOnFirstScreen(page);
  expectQuiet(/ 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  await showsProblems(browser, program);
  console.log("good: the first screen says that events are incomplete, which source never sent, since when, and how often");
}

// All that an operator needs first is visible without scrolling.
async function isOnFirstScreen(page) {
  await page.evaluate("window.scrollTo(0, 0)");
  const below = await page.evaluate(() => ["run", "state", "commands", "quality-state", "quality-sentence", "incomplete", "event-rate", "bandwidth-in", "bandwidth-out", "alarms"]
    .filter((id) => document.getElementById(id).getBoundingClientRect().bottom > window.innerHeight));
  expect(below.length === 0, `not on the first screen: ${below}`);
}

// Made-up views: a current problem is loud, one that is over is quiet and keeps its times.
async function showsProblems(browser, program) {
  const run = start(program, ["demo", "--sources", "1", "--rate", "1Hz", "--duration", "60s", "--output", scratch, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage();
  // No view of the server comes between.
  await page.addInitScript(() => { window.EventSource = class { addEventListener() {} }; });
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  // Shown and read in one step: the page's own first view may come between two.
  const show = (view) => page.evaluate(async (shown) => {
    (await import("/quality.js")).show({ quality: shown });
    return {
      kind: document.getElementById("quality").className.replace("quality ", ""),
      state: document.getElementById("quality-state").textContent,
      lines: [...document.querySelectorAll("#problems li")].map((line) => [line.className, line.firstChild.textContent, line.children[1].textContent].join("|")),
    };
  }, view);
  const expectSame = (found, wanted) => expect(JSON.stringify(found) === JSON.stringify(wanted), `${JSON.stringify(found)}, not ${JSON.stringify(wanted)}`);
  const over = "over|boardB (source 8): 2,049 fragments with a wrong checksum|12:03:05 until 12:04:05, 2,049 fragments";
  expectSame(await show(restarted(true)), {
    kind: "bad", state: "Incomplete", lines: ["current|boardA (source 7) restarted counting at event 600|since 12:03:05, 2,049 times", over],
  });
  expectSame(await show(restarted(false)), {
    kind: "over", state: "Incomplete earlier", lines: ["over|boardA (source 7) restarted counting at event 600|12:03:05 until 12:04:05, 2,049 times", over],
  });
  const good = { ...restarted(false), state: "good", sentence: "all events are complete", problems: [] };
  expectSame(await show(good), { kind: "good", state: "Good", lines: [] });
  expectSame(await show({ ...good, state: "no_data", sentence: "no event yet" }), { kind: "no_data", state: "No data", lines: [] });
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
}
