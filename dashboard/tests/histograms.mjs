// Histograms of fragments: bars of the bins, and the values outside of them as text.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, isPng, rowsOf, saved, scratch, start, tab, until, watched } from "./harness.mjs";

const configuration = (output) => `version = 1
[run]
output = ${JSON.stringify(output)}
write = false
acknowledge = "built"
[[readout]]
name = "ru0"
[[builder]]
name = "bu0"
[[source]]
id = 1
readout = "ru0"
emulate = { rate = "200Hz", fragment_size = "1KiB" }
[[source]]
id = 2
readout = "ru0"
emulate = { rate = "200Hz", fragment_size = "3KiB" }
[[histogram]]
name = "sizes"
of = "size"
from = 0
to = "2KiB"
bins = 4
[[histogram]]
name = "intervals"
sources = [2]
of = "interval"
scale = "logarithmic"
from = "1us"
to = "1s"
bins = 12
`;

const beside = `document.getElementById("histogram-beside").textContent`;
const choices = (id) => `[...document.getElementById("${id}").options].map((option) => option.textContent).join()`;

// Whether there is a bar in the middle of each bin: checks its colour on the canvas, above the axis.
const bars = (bins) => `(() => {
  const canvas = document.querySelector("#histogram canvas");
  const over = document.querySelector("#histogram .u-over");
  if (canvas.clientWidth === 0) return "not drawn yet";
  const scale = canvas.width / canvas.clientWidth;
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  probe.fillRect(0, 0, 1, 1);
  const wanted = probe.getImageData(0, 0, 1, 1).data.join();
  return Array.from({ length: ${bins} }, (_, bin) => {
    const x = (over.offsetLeft + over.clientWidth * (bin + 0.5) / ${bins}) * scale;
    const y = (over.offsetTop + over.clientHeight * 0.9) * scale;
    return canvas.getContext("2d").getImageData(Math.round(x), Math.round(y), 1, 1).data.join() === wanted;
  }).join();
})()`;

export async function histograms(browser, program, shots) {
  const output = join(scratch, "histograms");
  mkdirSync(output);
  const file = join(scratch, "histograms.toml");
  writeFileSync(file, configuration(output));
  const run = start(program, ["run", file, "--control", "127.0.0.1:0"]);
  const page = await browser.newPage({ viewport: { width: 1200, height: 1600 } });
  const expectQuiet = watched(page);
  await page.goto(await run.line(/dashboard: (http:\S+)/));
  const section = page.locator("#panel-histograms");
  await until(page, "a histogram with something in it", `!document.getElementById("tab-histograms").hidden && / above$/.test(${beside})`);
  await tab(page, "Histograms");
  expect(await page.evaluate(choices("histogram-name")) === "sizes,intervals", "the histograms that can be chosen are others");
  expect(await page.evaluate(choices("histogram-source")) === "all,source 1,source 2", "the sources that can be chosen are others");
  await until(page, "bars of sizes in their bins", `${bars(4)} === "false,false,true,false"`);
  await section.screenshot({ path: join(shots, "histogram.png") });

  // Both sources send equally often: one of them is in a bin, and the other one above them all.
  const counted = (pattern) => `Number((${pattern}.exec(${beside})?.[1] ?? "0").replace(/,/g, ""))`;
  const [inside, above] = [await page.evaluate(counted("/^([\\d,]+) in the bins/")), await page.evaluate(counted("/([\\d,]+) above$/"))];
  expect(inside > 0 && Math.abs(inside - above) <= 200, `${inside} in the bins and ${above} above them`);
  await until(page, "more of them", `${counted("/^([\\d,]+) in the bins/")} > ${inside}`);

  await savesIt(page);
  await page.locator("#histogram-source").selectOption("1");
  await until(page, "one source alone", `/^[1-9][\\d,]* in the bins$/.test(${beside})`);
  await page.locator("#histogram-source").selectOption("2");
  await until(page, "the other source alone", `/^0 in the bins, [1-9][\\d,]* above$/.test(${beside})`);
  await until(page, "no bar", `${bars(4)} === "false,false,false,false"`);

  // A histogram with other bins is drawn again, with its own axis.
  await page.locator("#histogram-name").selectOption("intervals");
  await until(page, "times between fragments", `/^[1-9][\\d,]* in the bins/.test(${beside}) && ${bars(12)}.includes("true")`);
  const label = await page.locator("#histogram").getAttribute("aria-label");
  expect(label.startsWith("intervals: "), `the label for screen readers: ${label}`);
  // Source 1 has no such histogram: another one is drawn.
  await page.locator("#histogram-source").selectOption("1");
  await until(page, "what can be drawn", `${beside} !== "" && document.getElementById("histogram-source").value === ""`);
  expectQuiet();
  await page.close();
  run.child.kill("SIGINT");
  await run.ended;
  console.log("good: histograms are drawn while they are filled, of all sources and of one");
}

// Statistics, a logarithmic axis, and files.
async function savesIt(page) {
  await until(page, "statistics", `/^Entries [1-9][\\d,]* · mean 1\\.\\d+ kB · RMS \\d+ B · median 1\\.\\d+ kB/.test(document.getElementById("histogram-statistics").textContent)`);
  await page.check("#histogram-log");
  await until(page, "bars on a logarithmic axis", `${bars(4)} === "false,false,true,false"`);
  const rows = rowsOf(await saved(page, "#histogram-csv"));
  expect(rows.length === 5 && rows[0][0] === "from" && Number(rows[3][3]) > 0 && Number(rows[1][3]) === 0, `the file: ${JSON.stringify(rows)}`);
  expect(isPng(await saved(page, "#histogram-png")), "the file is not a PNG");
  await page.uncheck("#histogram-log");
}
