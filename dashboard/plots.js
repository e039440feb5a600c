// How it went: plots of what /api/v1/history keeps, by uPlot.

/* global uPlot */
import { bandwidth, byId, element, grouped, percent } from "./format.js";

// Seconds that are shown, seconds from one point to the next, seconds from one question to the next.
const SPANS = { 600: { step: 2, every: 2 }, 3600: { step: 5, every: 5 }, 604800: { step: 600, every: 60 } };
const HEIGHT = 150;

const milliseconds = (seconds) => (seconds === null || seconds === undefined ? "–" : `${(1000 * seconds).toPrecision(3)} ms`);
const PLOTS = [
  { title: "Event rate", unit: (value) => `${grouped(value)} /s`, lines: [["events_per_second", "events"]] },
  { title: "Bandwidth", unit: bandwidth, lines: [["bytes_in_per_second", "in"], ["bytes_to_disk_per_second", "to disk"]] },
  { title: "Live time", unit: percent, most: 1, lines: [["live_share", "live"]] },
  { title: "Occupancy of buffers", unit: percent, most: 1, lines: [["pool_share", "fullest readout unit"]] },
  { title: "Events in flight", unit: grouped, lines: [["events_in_flight", "in flight"]] },
  {
    title: "Build latency", unit: milliseconds,
    lines: [["build_latency_p50_seconds", "half"], ["build_latency_p99_seconds", "99 %"]],
  },
  { title: "Disk writing time", unit: milliseconds, lines: [["disk_write_p99_seconds", "99 %"]] },
];

let chosen = 600;
let drawn = []; // { plot, uplot, box, names }
let askedAt = 0;

// Times of day on an axis, with the day where it is a longer time.
function times(seconds) {
  const date = new Date(1000 * seconds);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return chosen > 86400 ? `${date.toLocaleDateString("en-GB", { weekday: "short" })} ${time}` : time;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Lines of one plot are told apart by their dashes, too.
const STROKES = [["--accent", []], ["--second", [6, 3]], ["--quiet", [2, 3]]];

function options(plot, names, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const series = names.map(([, label], index) => ({
    label,
    stroke: colour(STROKES[index][0]),
    dash: STROKES[index][1],
    width: 2,
    points: { show: false },
    value: (_, value) => (value === null ? "–" : plot.unit(value)),
  }));
  return {
    width,
    height: HEIGHT,
    cursor: { sync: { key: "history" }, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, most) => [0, plot.most ?? Math.max(most * 1.1, 1e-9)] } },
    axes: [{ ...axis, space: 80, values: (_, values) => values.map(times) }, { ...axis, size: 82, values: (_, values) => values.map(plot.unit) }],
    series: [{ label: "at", value: (_, value) => (value === null ? "–" : times(value)) }, ...series],
  };
}

// Makes the plots anew: at the beginning, where the colours change, and where there are other series.
function build(names) {
  const old = drawn;
  drawn = [];
  old.forEach(({ uplot }) => uplot.destroy());
  const boxes = [];
  for (const plot of PLOTS) {
    const lines = plot.lines.filter(([name]) => names.has(name));
    if (lines.length === 0) continue;
    const box = element("div", { class: "plot", role: "img", "aria-label": plot.title }, element("h3", {}, plot.title));
    boxes.push(box);
    drawn.push({ plot, lines, box, uplot: null });
  }
  byId("plots").replaceChildren(...boxes);
  for (const each of drawn) {
    const empty = [[], ...each.lines.map(() => [])];
    each.uplot = new uPlot(options(each.plot, each.lines, each.box.clientWidth), empty, each.box);
  }
}

// What was measured, on a time axis of the chosen length: what was not seen stays empty.
function onAxis({ times, series, step_seconds: step }, lines) {
  const until = Math.floor(Date.now() / 1000 / step) * step;
  const from = until - Math.ceil(chosen / step) * step;
  const places = (until - from) / step + 1;
  const axis = Array.from({ length: places }, (_, index) => from + index * step);
  const columns = lines.map(([name]) => {
    const column = new Array(places).fill(null);
    times.forEach((time, index) => {
      const place = Math.round((time - from) / step);
      if (place >= 0 && place < places) column[place] = series[name][index];
    });
    return column;
  });
  return [axis, ...columns];
}

function show(history) {
  const names = Object.keys(history.series);
  const wanted = PLOTS.flatMap(({ lines }) => lines.map(([name]) => name)).filter((name) => names.includes(name));
  if (wanted.join() !== drawn.flatMap(({ lines }) => lines.map(([name]) => name)).join()) build(new Set(names));
  for (const { plot, lines, uplot, box } of drawn) {
    uplot.setData(onAxis(history, lines));
    const newest = lines.map(([name, label]) => {
      const value = history.series[name].at(-1);
      return `${label} ${value === null || value === undefined ? "unknown" : plot.unit(value)}`;
    });
    box.setAttribute("aria-label", `${plot.title}, now: ${newest.join(", ")}`);
  }
}

async function read() {
  const { step, every } = SPANS[chosen];
  if (document.hidden || performance.now() - askedAt < every * 1000) return;
  askedAt = performance.now();
  const asked = chosen;
  const since = Math.floor(Date.now() / 1000) - chosen;
  const answer = await fetch(`/api/v1/history?since=${since}&step=${step}`);
  // Another time may have been chosen meanwhile.
  if (answer.ok && asked === chosen) show(await answer.json());
}

function look() {
  read().catch(() => {});
}

export function begin() {
  const buttons = [...document.querySelectorAll("[data-span]")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      chosen = Number(button.dataset.span);
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      askedAt = -Infinity;
      look();
    });
  }
  new ResizeObserver(() => {
    for (const { uplot, box } of drawn) {
      if (uplot && uplot.width !== box.clientWidth) uplot.setSize({ width: box.clientWidth, height: HEIGHT });
    }
  }).observe(byId("plots"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    build(new Set(drawn.flatMap(({ lines }) => lines.map(([name]) => name))));
    askedAt = -Infinity;
    look();
  });
  askedAt = -Infinity;
  look();
  setInterval(look, 500);
}
