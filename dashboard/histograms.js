// Histograms of fragments: /api/v1/histograms, drawn as bars by uPlot.

/* global uPlot */
import { axis, colour, positive, saveCsv, savePng, statistics, statisticsText, valueScale } from "./charts.js";
import { byId, bytes, duration, element, grouped, setText, sourceLabel } from "./format.js";
import { referenceRun } from "./plots.js";
import { offer as offerTab } from "./tabs.js";

const HEIGHT = 240;
const EVERY_MILLISECONDS = 2000;

let drawn = null; // { what, uplot, histogram, columns: [counts, counts of the reference run if it has them] }
// The account of the reference run.
let reference = { run: null, histograms: [] };
let offered = "";
let isBusy = false;

const isLog = () => byId("histogram-log").checked;

const FORMATS = { bytes, nanoseconds: duration, count: grouped };

// Adds up several sources: they have the same bins.
export function sum(sources) {
  const all = Object.values(sources);
  const add = (name) => all.reduce((sum, one) => sum + one[name], 0);
  const counts = all.reduce((sums, one) => sums.map((sum, bin) => sum + one.counts[bin]), all.length ? all[0].counts.map(() => 0) : []);
  return { counts, underflow: add("underflow"), overflow: add("overflow"), short: add("short") };
}

// Counts in the bins and outside of them, as text.
export function beside({ counts, underflow, overflow, short }) {
  const inside = counts.reduce((sum, count) => sum + count, 0);
  const others = [[underflow, "below"], [overflow, "above"], [short, "too short for the field"]].filter(([count]) => count > 0);
  return [`${grouped(inside)} in the bins`, ...others.map(([count, words]) => `${grouped(count)} ${words}`)].join(", ");
}

function options(histogram, width, isCompared) {
  const format = FORMATS[histogram.unit];
  const { edges } = histogram;
  // All bins are drawn with the same width; the axis shows their edges.
  const label = (bin) => (Number.isInteger(bin) && edges[bin] !== undefined ? format(edges[bin]) : "");
  return {
    width,
    height: HEIGHT,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: [0, edges.length - 1] }, y: valueScale(isLog()) },
    axes: [
      { ...axis(), space: 80, size: 34, values: (_, bins) => bins.map(label) },
      { ...axis(), size: 82, values: (_, values) => values.map((value) => (value === null ? null : grouped(value))) },
    ],
    series: [
      { label: "from", value: (_, bin) => (bin === null ? "–" : label(Math.floor(bin))) },
      { label: "fragments", stroke: colour("--accent"), fill: colour("--accent"), paths: uPlot.paths.bars({ size: [1], align: 1 }), points: { show: false } },
      ...(isCompared ? [{ label: `run ${reference.run}, scaled`, stroke: colour("--second"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }] : []),
    ],
  };
}

// Statistics from the bins, each value in the middle of its bin.
function statisticsOf({ edges, unit }, counts) {
  const middles = counts.map((_, bin) => (edges[bin] + edges[bin + 1]) / 2);
  return statisticsText(statistics(middles, counts), (value) => FORMATS[unit](Number(value.toPrecision(4))));
}

// The same histogram in the reference run, scaled to as many entries in the bins; null if it has none.
function underneath(histogram, counts) {
  const before = reference.histograms.find(({ name }) => name === histogram.name);
  const wanted = Object.keys(histogram.sources);
  const sources = Object.entries(before?.sources ?? {}).filter(([id]) => wanted.includes(id)).map(([, filled]) => filled);
  const found = sum(sources).counts;
  const [all, now] = [found, counts].map((some) => some.reduce((total, count) => total + count, 0));
  return found.length === counts.length && all > 0 ? found.map((count) => (count * now) / all) : null;
}

async function readReference() {
  const run = referenceRun();
  if (run === reference.run) return;
  const answer = run === null ? null : await fetch(`/api/v1/runs/${run}`);
  reference = { run, histograms: answer?.ok ? (await answer.json()).histograms ?? [] : [] };
}

function draw(histogram) {
  const box = byId("histogram");
  const { counts, ...others } = sum(histogram.sources);
  const before = underneath(histogram, counts);
  const columns = before ? [counts, before] : [counts];
  const what = JSON.stringify([histogram.name, histogram.edges, colour("--accent"), isLog(), before && reference.run]);
  const data = [counts.map((_, bin) => bin), ...columns.map((column) => (isLog() ? positive(column) : column))];
  if (drawn?.what !== what) {
    drawn?.uplot.destroy();
    drawn = { what, uplot: new uPlot(options(histogram, box.clientWidth, Boolean(before)), data, box) };
  } else {
    drawn.uplot.setData(data);
  }
  Object.assign(drawn, { histogram, columns });
  const words = beside({ counts, ...others });
  setText(byId("histogram-beside"), words);
  setText(byId("histogram-statistics"), statisticsOf(histogram, counts));
  box.setAttribute("aria-label", `${histogram.name}: ${words}`);
}

// A row for each bin: its edges, and its counts in this run and in the reference run.
function table() {
  const { histogram: { edges, unit }, columns } = drawn;
  const heads = ["fragments", `fragments of run ${reference.run}, scaled`].slice(0, columns.length);
  return [["from", "to", "unit", ...heads], ...columns[0].map((_, bin) => [edges[bin], edges[bin + 1], unit, ...columns.map((column) => column[bin])])];
}

// Fills a list of choices; the chosen one stays chosen.
function offer(id, values, first, label = (value) => value) {
  const select = byId(id);
  const chosen = select.value;
  select.replaceChildren(...first, ...values.map((value) => element("option", { value }, label(value))));
  if ([...select.options].some((option) => option.value === chosen)) select.value = chosen;
}

async function ask(query) {
  const answer = await fetch(`/api/v1/histograms?${new URLSearchParams(query)}`);
  return answer.ok ? answer.json() : [];
}

async function read() {
  await readReference();
  const query = {};
  const name = byId("histogram-name").value;
  const source = byId("histogram-source").value;
  if (offered && name) query.name = name;
  if (offered && source) query.source = source;
  const found = await ask(query);
  const histogram = found[0];
  if (!histogram) {
    // Another run may have other histograms, or other sources.
    offered = "";
    offerTab("tab-histograms", found.length > 0 || Boolean(name));
    if (source) byId("histogram-source").value = "";
    else byId("histogram-name").value = "";
    return;
  }
  offerTab("tab-histograms", true);
  if (!offered) {
    const all = await ask({});
    offered = JSON.stringify(all.map((one) => one.name));
    offer("histogram-name", all.map((one) => one.name), []);
    const ids = new Set(all.flatMap((one) => Object.keys(one.sources)));
    const sorted = [...ids].sort((one, other) => one - other);
    offer("histogram-source", sorted, [element("option", { value: "" }, "all")], (id) => sourceLabel(Number(id)));
  }
  draw(histogram);
}

function look() {
  if (document.hidden || isBusy) return;
  isBusy = true;
  read().catch(() => {}).finally(() => (isBusy = false));
}

export function begin() {
  for (const id of ["histogram-name", "histogram-source", "histogram-log"]) byId(id).addEventListener("change", look);
  byId("histogram-csv").addEventListener("click", () => saveCsv(`ropewalk-${drawn.histogram.name}.csv`, table()));
  byId("histogram-png").addEventListener("click", () => {
    const text = `${byId("histogram").getAttribute("aria-label")}. ${byId("histogram-statistics").textContent}`;
    savePng(`ropewalk-${drawn.histogram.name}.png`, [{ text, canvas: drawn.uplot.ctx.canvas }]);
  });
  new ResizeObserver(() => {
    const box = byId("histogram");
    if (drawn && box.clientWidth > 0 && drawn.uplot.width !== box.clientWidth) drawn.uplot.setSize({ width: box.clientWidth, height: HEIGHT });
  }).observe(byId("histogram"));
  look();
  setInterval(look, EVERY_MILLISECONDS);
}
