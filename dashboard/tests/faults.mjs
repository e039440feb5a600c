// Staged faults on the page: the sentence of each is on the first screen, on a desk and on a phone. The tests of the program
// (crates/ropewalk/tests/program/quality.rs) stage the same faults and find the same words in the view that the server sends.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, scratch, start, state, until, watched } from "./harness.mjs";

const table = JSON.parse(readFileSync(new URL("faults.json", import.meta.url)));

// The view of a good run, with a fault. Its alarm is seldom alone.
function withFault(live, { alarm: name, sentence, state: quality, severity = "critical" }) {
  const now = Date.now() * 1e6;
  const alarm = { name, severity, state: "active", sentence, run: live.run, value: 1 };
  const other = { ...alarm, name: "events_incomplete", sentence: "2,049 incomplete events: boardB (source 843) is missing" };
  const isOfData = quality !== "good";
  const problem = { kind: name, source: 843, count: 70, since_ns: now, last_ns: now, is_current: true, sentence };
  const ofRun = { ...live.quality, state: quality, is_current: isOfData, problems: isOfData ? [problem] : [] };
  return {
    ...live,
    quality: isOfData ? { ...ofRun, sentence: `${sentence} (and 1 more problem)` } : ofRun,
    alarms: isOfData ? [alarm, other] : [alarm],
  };
}

// Shows a view and tells, in the same step, which of these elements say the sentence within the window.
const seen = (page, view, sentence) => page.evaluate(([shown, words]) => {
  window.stream.hear({ data: JSON.stringify(shown) });
  window.scrollTo(0, 0);
  const isInside = (one) => {
    const { top, bottom, height, right } = one.getBoundingClientRect();
    return height > 0 && top >= 0 && bottom <= window.innerHeight && right <= window.innerWidth + 1;
  };
  const says = (place) => [...document.querySelectorAll(place)].some((one) => one.textContent.startsWith(words) && isInside(one));
  return { quality: says("#quality-sentence"), alarms: says("#alarms .what"), kind: document.getElementById("quality").className };
}, [view, sentence]);

export async function faults(browser, program, shots) {
  const run = start(program, ["demo", "--sources", "2", "--rate", "10Hz", "--duration", "120s", "--output", scratch, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage();
  const expectQuiet = watched(page);
  // No view of the server comes between.
  await page.addInitScript(() => {
    window.EventSource = class {
      constructor() { window.stream = this; }
      addEventListener(name, hear) { if (name === "live") this.hear = hear; }
    };
  });
  const url = await run.line(/dashboard: (http:\S+)/);
  await page.goto(url);
  let live = {};
  for (let wait = 0; wait < 100 && live.quality?.state !== "good"; wait += 1) {
    await page.waitForTimeout(100);
    live = await page.evaluate("fetch('/api/v1/live').then((answer) => answer.json())");
  }
  await until(page, "running", state("running"));
  for (const [width, height] of [[1400, 900], [390, 844]]) {
    await page.setViewportSize({ width, height });
    for (const fault of table) {
      const found = await seen(page, withFault(live, fault), fault.sentence);
      const isOfData = fault.state !== "good";
      expect(found.alarms && found.quality === isOfData, `${fault.fault} at ${width}: ${JSON.stringify(found)}`);
      expect(found.kind === (isOfData ? "quality bad" : "quality good"), `${fault.fault}: ${found.kind}`);
    }
    await page.screenshot({ path: join(shots, `fault-${width}.png`) });
  }
  expectQuiet(/ 404 .*\/events\/sample/);
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log(`good: ${table.length} staged faults are on the first screen, on a desk and on a phone`);
}
