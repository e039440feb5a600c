// Histograms of fragments: /api/v1/histograms, drawn as bars by uPlot.

/* global uPlot */
import { byId, bytes, element, grouped, setText } from "./format.js";

const HEIGHT = 150;
const EVERY_MILLISECONDS = 2000;

let drawn = null; // { histogram's name and edges, uplot }
let offered = "";
let isBusy = false;

// A duration in a suitable unit.
function time(nanoseconds) {
  for (const [unit, one] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (nanoseconds >= one) return `${+(nanoseconds / one).toPrecision(3)} ${unit}`;
  }
  return `${nanoseconds} ns`;
}

const FORMATS = { bytes, nanoseconds: time, count: grouped };

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Adds up several sources, which have the same bins.
export function sum(sources) {
  const all = Object.values(sources);
  const add = (name) => all.reduce((sum, one) => sum + one[name], 0);
  const counts = all.reduce((sums, one) => sums.map((sum, bin) => sum + one.counts[bin]), all.length ? all[0].counts.map(() => 0) : []);
  return { counts, underflow: add("underflow"), overflow: add("overflow"), short: add("short") };
}

// Describes the values outside of the bins.
export function beside({ counts, underflow, overflow, short }) {
  const inside = counts.reduce((sum, count) => sum + count, 0);
  const others = [[underflow, "below"], [overflow, "above"], [short, "too short for the field"]].filter(([count]) => count > 0);
  return [`${grouped(inside)} in the bins`, ...others.map(([count, words]) => `${grouped(count)} ${words}`)].join(", ");
}

function options(histogram, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const format = FORMATS[histogram.unit];
  const { edges } = histogram;
  // All bins are drawn with the same width; the axis names their edges.
  const label = (bin) => (Number.isInteger(bin) && edges[bin] !== undefined ? format(edges[bin]) : "");
  return {
    width,
    height: HEIGHT,
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: [0, edges.length - 1] }, y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] } },
    axes: [{ ...axis, space: 80, values: (_, bins) => bins.map(label) }, { ...axis, size: 82, values: (_, values) => values.map(grouped) }],
    series: [
      { label: "from", value: (_, bin) => (bin === null ? "–" : label(Math.floor(bin))) },
      { label: "fragments", stroke: colour("--accent"), fill: colour("--accent"), paths: uPlot.paths.bars({ size: [1], align: 1 }), points: { show: false } },
    ],
  };
}

function draw(histogram) {
  const box = byId("histogram");
  const what = JSON.stringify([histogram.name, histogram.edges, colour("--accent")]);
  const { counts, ...others } = sum(histogram.sources);
  const data = [counts.map((_, bin) => bin), counts];
  if (drawn?.what !== what) {
    drawn?.uplot.destroy();
    drawn = { what, uplot: new uPlot(options(histogram, box.clientWidth), data, box) };
  } else {
    drawn.uplot.setData(data);
  }
  const words = beside({ counts, ...others });
  setText(byId("histogram-beside"), words);
  box.setAttribute("aria-label", `${histogram.name}: ${words}`);
}

// Updates the choices and keeps the selection.
function offer(id, values, first) {
  const select = byId(id);
  const chosen = select.value;
  select.replaceChildren(...first, ...values.map((value) => element("option", { value }, value)));
  if ([...select.options].some((option) => option.value === chosen)) select.value = chosen;
}

async function ask(query) {
  const answer = await fetch(`/api/v1/histograms?${new URLSearchParams(query)}`);
  return answer.ok ? answer.json() : [];
}

async function read() {
  const query = {};
  const name = byId("histogram-name").value;
  const source = byId("histogram-source").value;
  if (offered && name) query.name = name;
  if (offered && source) query.source = source;
  const found = await ask(query);
  const histogram = found[0];
  if (!histogram) {
    // Another run may have other histograms or sources.
    offered = "";
    byId("histogram-section").hidden = found.length === 0 && !name;
    if (source) byId("histogram-source").value = "";
    else byId("histogram-name").value = "";
    return;
  }
  byId("histogram-section").hidden = false;
  if (!offered) {
    const all = await ask({});
    offered = JSON.stringify(all.map((one) => one.name));
    offer("histogram-name", all.map((one) => one.name), []);
    const ids = new Set(all.flatMap((one) => Object.keys(one.sources)));
    const sorted = [...ids].sort((one, other) => one - other);
    offer("histogram-source", sorted, [element("option", { value: "" }, "all together")]);
  }
  draw(histogram);
}

function look() {
  if (document.hidden || isBusy) return;
  isBusy = true;
  read().catch(() => {}).finally(() => (isBusy = false));
}

export function begin() {
  for (const id of ["histogram-name", "histogram-source"]) byId(id).addEventListener("change", look);
  new ResizeObserver(() => {
    const box = byId("histogram");
    if (drawn && drawn.uplot.width !== box.clientWidth) drawn.uplot.setSize({ width: box.clientWidth, height: HEIGHT });
  }).observe(byId("histogram"));
  look();
  setInterval(look, EVERY_MILLISECONDS);
}
