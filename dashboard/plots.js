// History: plots of /api/v1/history, by uPlot.

/* global uPlot */
import { axis, colour, positive, saveCsv, savePng, statistics, statisticsText, valueScale } from "./charts.js";
import { bandwidth, byId, bytes, duration, element, grouped, percent, setText } from "./format.js";
import { give } from "./requests.js";

// By the seconds shown: seconds between points, and between requests.
const SPANS = { 600: { step: 2, every: 2 }, 3600: { step: 5, every: 5 }, 604800: { step: 600, every: 60 } };
const HEIGHT = 120;

const latency = (seconds) => (seconds === null || seconds === undefined ? "–" : duration(1e9 * seconds));
const PLOTS = [
  { title: "Event rate", unit: (value) => `${grouped(value)} /s`, lines: [["events_per_second", "events"], ["incomplete_per_second", "incomplete"], ["doubtful_per_second", "doubtful"]] },
  { title: "Bandwidth", unit: bandwidth, lines: [["bytes_in_per_second", "in"], ["bytes_to_disk_per_second", "to disk"]] },
  {
    title: "Build latency", unit: latency,
    lines: [["build_latency_p50_seconds", "median"], ["build_latency_p99_seconds", "99th percentile"]],
  },
  { title: "Live time", unit: percent, most: 1, lines: [["live_share", "live"]] },
  { title: "Mean event size", unit: bytes, lines: [["event_size_bytes", "events"]] },
  { title: "Buffers in use", unit: percent, most: 1, lines: [["pool_share", "fullest"]] },
  { title: "Events in flight", unit: grouped, lines: [["events_in_flight", "in flight"]] },
  { title: "Disk writing time", unit: latency, lines: [["disk_write_p99_seconds", "99th percentile"]] },
];

// Plots that are always shown; the others are below More plots.
const FIRST_PLOTS = 4;

let chosen = 600;
let drawn = []; // { plot, lines, box, uplot }
let data = []; // of each drawn plot, as uPlot takes it
let askedAt = 0;
// The reference run, as /api/v1/reference has it, and the second in which the current run began.
let reference = { run: null, series: {} };
let began = null;
// Seconds between requests for the reference run: another operator may have chosen one.
const REFERENCE_EVERY = 5;
let referenceAt = -Infinity;

// Times on an axis: of day, with the weekday on a long axis.
function times(seconds) {
  const date = new Date(1000 * seconds);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  return chosen > 86400 ? `${date.toLocaleDateString("en-GB", { weekday: "short" })} ${time}` : time;
}

const isLog = () => byId("plots-log").checked;

// The reference run's number, or null.
export const referenceRun = () => reference.run;

// Lines of one plot also differ in their dashes.
const STROKES = [["--accent", []], ["--second", [6, 3]], ["--quiet", [2, 3]]];

// The broad, pale line of the reference run under a line.
const under = (name, label) => [name, `${label}, run ${reference.run}`, true];

function options(plot, names, width) {
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
    scales: { y: valueScale(isLog(), plot.most) },
    axes: [
      { ...axis(), space: 80, size: 34, values: (_, values) => values.map(times) },
      { ...axis(), size: 82, values: (_, values) => values.map((value) => (value === null ? null : plot.unit(value))) },
    ],
    series: [{ label: "at", value: (_, value) => (value === null ? "–" : times(value)) }, ...series],
  };
}

// Rebuilds the plots: at the beginning, for other colours, another scale, and other series.
function build(names) {
  const old = drawn;
  drawn = [];
  old.forEach(({ uplot }) => uplot.destroy());
  const boxes = [];
  data = [];
  for (const plot of PLOTS) {
    const known = plot.lines.filter(([name]) => names.has(name));
    if (known.length === 0) continue;
    const compared = reference.run === null ? [] : known.filter(([name]) => name in reference.series);
    // The line underneath is drawn first.
    const lines = [...compared.map(([name, label]) => under(name, label)), ...known];
    const box = element("div", { class: "plot", role: "img", "aria-label": plot.title }, element("h3", {}, plot.title), element("p", { class: "statistics" }));
    boxes.push(box);
    drawn.push({ plot, lines, box, uplot: null });
  }
  byId("plots").replaceChildren(...boxes.slice(0, FIRST_PLOTS));
  byId("more-plots").replaceChildren(...boxes.slice(FIRST_PLOTS));
  for (const each of drawn) {
    const empty = [[], ...each.lines.map(() => [])];
    each.uplot = new uPlot(options(each.plot, each.lines, each.box.clientWidth), empty, each.box);
  }
}

// The value of a series of the reference run at the age that the current run had at this time.
function then(name, time) {
  const age = began === null ? -1 : time - began;
  return age < 0 ? null : reference.series[name][Math.floor(age / reference.step_seconds)] ?? null;
}

// The value of a series of the reference run at the current run's age, with the run's number: the newest known value of the last seconds,
// or null.
export function beforeNow(name) {
  if (!(name in reference.series)) return null;
  const now = Math.floor(Date.now() / 1000);
  const seen = [0, 1, 2, 3, 4].map((steps) => then(name, now - steps * reference.step_seconds)).find((value) => value !== null);
  return seen === undefined ? null : { run: reference.run, value: seen };
}

// Series on a time axis of the chosen length: unknown values stay null.
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
  data = drawn.map(({ lines }) => onAxis(history, lines));
  drawn.forEach(({ plot, lines, uplot, box }, index) => {
    const [at, ...columns] = data[index];
    uplot.setData([at, ...columns.map((column) => (isLog() ? positive(column) : column))]);
    const shown = lines.findIndex(([,, isUnder]) => !isUnder);
    setText(box.querySelector(".statistics"), `${lines[shown][1]}: ${statisticsText(statistics(columns[shown]), plot.unit)}`);
    const newest = lines.map(([name, label, isUnder]) => {
      const value = isUnder ? then(name, Math.floor(Date.now() / 1000)) : history.series[name].at(-1);
      return `${label} ${value === null || value === undefined ? "unknown" : plot.unit(value)}`;
    });
    box.setAttribute("aria-label", `${plot.title}, now: ${newest.join(", ")}`);
  });
}

// Reads which run is the reference.
async function readReference() {
  if (document.hidden || performance.now() - referenceAt < REFERENCE_EVERY * 1000) return;
  referenceAt = performance.now();
  const answer = await fetch("/api/v1/reference");
  if (answer.ok) compare(await answer.json());
}

function compare(chosenOne) {
  if (chosenOne.run !== reference.run) askedAt = -Infinity;
  reference = chosenOne;
  const field = byId("reference");
  if (document.activeElement !== field) field.value = chosenOne.run ?? "";
}

async function choose() {
  const text = byId("reference").value.trim();
  const reply = await give("reference", {}, { run: text === "" ? null : Number(text) });
  byId("reference").blur();
  // After a refusal the comparison stays as it was.
  compare(reply ?? reference);
}

// Notes when the current run began: the reference run is drawn from there on.
export function follow(live) {
  const isOn = ["running", "paused", "draining"].includes(live.state);
  if (!isOn) began = null;
  // The age is rounded: one run keeps one beginning, so that its line does not jump by a second.
  else if (began === null || Math.abs(Date.now() / 1000 - live.age_s - began) > 2) began = Math.round(Date.now() / 1000 - live.age_s);
}

async function read() {
  const { step, every } = SPANS[chosen];
  if (document.hidden || performance.now() - askedAt < every * 1000) return;
  askedAt = performance.now();
  const asked = chosen;
  const since = Math.floor(Date.now() / 1000) - chosen;
  const answer = await fetch(`/api/v1/history?since=${since}&step=${step}`);
  // Another span may have been chosen meanwhile.
  if (answer.ok && asked === chosen) show(await answer.json());
}

// All series on their common axis: a row for each time.
function table() {
  const heads = ["time", ...drawn.flatMap(({ lines }) => lines.map(([name,, isUnder]) => (isUnder ? `${name}_run_${reference.run}` : name)))];
  const columns = data.flatMap(([, ...series]) => series);
  const rows = (data[0]?.[0] ?? []).map((time, index) => [new Date(1000 * time).toISOString(), ...columns.map((column) => column[index])]);
  return [heads, ...rows];
}

const pictures = () => drawn.filter(({ box }) => box.clientWidth > 0).map(({ plot, box, uplot }) => ({
  text: `${plot.title}: ${box.querySelector(".statistics").textContent}`,
  canvas: uplot.ctx.canvas,
}));

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
  const fit = new ResizeObserver(() => {
    for (const { uplot, box } of drawn) {
      if (uplot && box.clientWidth > 0 && uplot.width !== box.clientWidth) uplot.setSize({ width: box.clientWidth, height: HEIGHT });
    }
  });
  for (const id of ["plots", "more-plots"]) fit.observe(byId(id));
  const rebuild = () => {
    build(new Set(drawn.flatMap(({ lines }) => lines.map(([name]) => name))));
    askedAt = -Infinity;
    look();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  byId("plots-log").addEventListener("change", rebuild);
  const showStatistics = () => document.body.classList.toggle("with-statistics", byId("plots-statistics").checked);
  byId("plots-statistics").addEventListener("change", showStatistics);
  byId("plots-csv").addEventListener("click", () => saveCsv("ropewalk-history.csv", table()));
  byId("plots-png").addEventListener("click", () => savePng("ropewalk-history.png", pictures()));
  byId("reference").addEventListener("change", () => choose().catch(() => {}));
  askedAt = -Infinity;
  look();
  setInterval(look, 500);
}
