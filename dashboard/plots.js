// Plots of /api/v1/history, by uPlot.

/* global uPlot */
import { bandwidth, byId, bytes, element, grouped, percent } from "./format.js";
import { give } from "./requests.js";

// Time shown, time between points, time between requests, in seconds.
const SPANS = { 600: { step: 2, every: 2 }, 3600: { step: 5, every: 5 }, 604800: { step: 600, every: 60 } };
const HEIGHT = 150;

const milliseconds = (seconds) => (seconds === null || seconds === undefined ? "–" : `${(1000 * seconds).toPrecision(3)} ms`);
const PLOTS = [
  { title: "Event rate", unit: (value) => `${grouped(value)} /s`, lines: [["events_per_second", "events"]] },
  { title: "Bandwidth", unit: bandwidth, lines: [["bytes_in_per_second", "in"], ["bytes_to_disk_per_second", "to disk"]] },
  { title: "Mean event size", unit: bytes, lines: [["event_size_bytes", "events"]] },
  { title: "Live time", unit: percent, most: 1, lines: [["live_share", "live"]] },
  { title: "Occupancy of buffers", unit: percent, most: 1, lines: [["pool_share", "fullest"]] },
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
// The reference run, as in /api/v1/reference, and the second in which the present run began.
let reference = { run: null, series: {} };
let began = null;
// Seconds between requests for the reference: another user may have changed it.
const REFERENCE_EVERY = 5;
let referenceAt = -Infinity;

// Times of day on an axis, with the day for long spans.
function times(seconds) {
  const date = new Date(1000 * seconds);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return chosen > 86400 ? `${date.toLocaleDateString("en-GB", { weekday: "short" })} ${time}` : time;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Lines of one plot also differ by their dashes.
const STROKES = [["--accent", []], ["--second", [6, 3]], ["--quiet", [2, 3]]];

// The lines of the reference run, below those of the present run.
const under = (name, label) => [name, `${label}, run ${reference.run}`, true];

function options(plot, names, width) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const lines = names.filter(([,, isUnder]) => !isUnder);
  const series = names.map(([name, label, isUnder]) => ({
    label,
    stroke: isUnder ? colour("--under") : colour(STROKES[lines.findIndex(([other]) => other === name)][0]),
    dash: STROKES[lines.findIndex(([other]) => other === name)][1],
    width: isUnder ? 5 : 2,
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

// Makes the plots again: at the beginning, and when colours or series change.
function build(names) {
  const old = drawn;
  drawn = [];
  old.forEach(({ uplot }) => uplot.destroy());
  const boxes = [];
  for (const plot of PLOTS) {
    const known = plot.lines.filter(([name]) => names.has(name));
    if (known.length === 0) continue;
    const compared = reference.run === null ? [] : known.filter(([name]) => name in reference.series);
    // The lines below the others are drawn first.
    const lines = [...compared.map(([name, label]) => under(name, label)), ...known];
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

// The value of a series of the reference run at the age of the present run at this time.
function then(name, time) {
  const age = began === null ? -1 : time - began;
  return age < 0 ? null : reference.series[name][Math.floor(age / reference.step_seconds)] ?? null;
}

// The value of a series of the reference run at the present run's age, and the number of the run: the newest value of the last seconds, or
// null without a reference or a value.
export function beforeNow(name) {
  if (!(name in reference.series)) return null;
  const now = Math.floor(Date.now() / 1000);
  const seen = [0, 1, 2, 3, 4].map((steps) => then(name, now - steps * reference.step_seconds)).find((value) => value !== null);
  return seen === undefined ? null : { run: reference.run, value: seen };
}

// The measured values, on a time axis of the selected length; gaps stay empty.
function onAxis({ times, series, step_seconds: step }, lines) {
  const until = Math.floor(Date.now() / 1000 / step) * step;
  const from = until - Math.ceil(chosen / step) * step;
  const places = (until - from) / step + 1;
  const axis = Array.from({ length: places }, (_, index) => from + index * step);
  const columns = lines.map(([name,, isUnder]) => {
    if (isUnder) return axis.map((time) => then(name, time));
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
  const present = ({ lines }) => lines.filter(([,, isUnder]) => !isUnder).map(([name]) => name);
  const compared = drawn.flatMap(({ lines }) => lines).find(([,, isUnder]) => isUnder)?.[1];
  const isOther = compared ? !compared.endsWith(`, run ${reference.run}`) : reference.run !== null;
  if (isOther || wanted.join() !== drawn.flatMap(present).join()) build(new Set(names));
  for (const { plot, lines, uplot, box } of drawn) {
    uplot.setData(onAxis(history, lines));
    const newest = lines.map(([name, label, isUnder]) => {
      const value = isUnder ? then(name, Math.floor(Date.now() / 1000)) : history.series[name].at(-1);
      return `${label} ${value === null || value === undefined ? "unknown" : plot.unit(value)}`;
    });
    box.setAttribute("aria-label", `${plot.title}, now: ${newest.join(", ")}`);
  }
}

// The reference run.
async function readReference() {
  if (document.hidden || performance.now() - referenceAt < REFERENCE_EVERY * 1000) return;
  referenceAt = performance.now();
  const answer = await fetch("/api/v1/reference");
  if (answer.ok) compare(await answer.json());
}

function compare(told) {
  if (told.run !== reference.run) askedAt = -Infinity;
  reference = told;
  const field = byId("reference");
  if (document.activeElement !== field) field.value = told.run ?? "";
}

async function choose() {
  const text = byId("reference").value.trim();
  const told = await give("reference", {}, { run: text === "" ? null : Number(text) });
  byId("reference").blur();
  // A run without a trend is reported; the comparison stays as it was.
  compare(told ?? reference);
}

// The begin of the present run, at which the reference run is aligned.
export function follow(live) {
  const isOn = ["running", "paused", "draining"].includes(live.state);
  began = isOn ? Math.round(Date.now() / 1000 - live.age_s) : null;
}

async function read() {
  const { step, every } = SPANS[chosen];
  if (document.hidden || performance.now() - askedAt < every * 1000) return;
  askedAt = performance.now();
  const asked = chosen;
  const since = Math.floor(Date.now() / 1000) - chosen;
  const answer = await fetch(`/api/v1/history?since=${since}&step=${step}`);
  // The user may have selected another span meanwhile.
  if (answer.ok && asked === chosen) show(await answer.json());
}

function look() {
  readReference().catch(() => {});
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
  byId("reference").addEventListener("change", () => choose().catch(() => {}));
  askedAt = -Infinity;
  look();
  setInterval(look, 500);
}
