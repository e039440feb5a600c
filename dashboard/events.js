// The event display: a sampled event with a bar for each source, and the data of one source.

import { colour, saveCsv, savePng, statistics, statisticsText } from "./charts.js";
import { byId, bytes, clock, element, grouped, setText, sourceLabel, words } from "./format.js";

const EVERY_MILLISECONDS = 1000;
const AFTER_NONE_MILLISECONDS = 5000;
const HIGHEST_PIXELS = 120;
const BYTES_IN_A_LINE = 16;

let event = null;
let isRunning = null;
let isInView = false;
let asks = false;
let hasAsked = false;
let notBefore = 0;
let picked = null; // a source's id

// A dump: offset, hexadecimal digits, and letters.
export function dump(hex) {
  const lines = [];
  for (let from = 0; from < hex.length; from += 2 * BYTES_IN_A_LINE) {
    const values = hex.slice(from, from + 2 * BYTES_IN_A_LINE).match(/../g) ?? [];
    const letters = values.map((digits) => {
      const value = parseInt(digits, 16);
      return value >= 0x20 && value < 0x7f ? String.fromCharCode(value) : ".";
    });
    const place = (from / 2).toString(16).padStart(6, "0");
    lines.push(`${place}  ${values.join(" ").padEnd(3 * BYTES_IN_A_LINE - 1)}  ${letters.join("")}`);
  }
  return lines.join("\n");
}

// Height of a bar in pixels: linear, or logarithmic from one byte on.
function heightOf(size, most) {
  const share = byId("event-log").checked ? Math.log(1 + size) / Math.log(1 + most) : size / most;
  return Math.max(2, HIGHEST_PIXELS * share);
}

function showBars() {
  const most = Math.max(1, ...event.sources.map((source) => source.bytes));
  const box = byId("event-bars");
  while (box.children.length > event.sources.length) box.lastChild.remove();
  while (box.children.length < event.sources.length) box.append(element("button", { class: "event-bar" }, element("i"), element("span")));
  const isThere = event.sources.some((source) => source.id === picked);
  const names = event.sources.map((source) => sourceLabel(source.id).replace(/^source |source (?=\d+\)$)/, ""));
  // Bars stand on one line: their names have the same height.
  box.style.setProperty("--label", `${Math.min(8, Math.max(2.2, ...names.map((name) => 0.6 + 0.42 * name.length)))}rem`);
  event.sources.forEach((source, index) => {
    const bar = box.children[index];
    const [stick, name] = bar.children;
    const isPicked = source.id === picked;
    bar.className = `event-bar ${source.missing ? "missing" : source.doubtful ? "doubtful" : ""}`;
    bar.setAttribute("aria-pressed", String(isPicked));
    bar.setAttribute("aria-label", [source.missing ? `${sourceLabel(source.id)} is missing` : `${sourceLabel(source.id)}, ${grouped(source.bytes)} bytes`, ...source.remarks].join(", "));
    // One tab stop; arrow keys go from source to source.
    bar.tabIndex = isPicked || (!isThere && index === 0) ? 0 : -1;
    bar.dataset.source = source.id;
    stick.style.height = `${source.missing ? HIGHEST_PIXELS : heightOf(source.bytes, most)}px`;
    setText(name, names[index]);
  });
}

function showDetail() {
  const box = byId("event-detail");
  const source = event.sources.find((one) => one.id === picked);
  if (!source) {
    box.replaceChildren(element("p", { class: "quiet" }, "Choose a source to see its data."));
    return;
  }
  const label = sourceLabel(source.id);
  const title = element("h3", {}, label.charAt(0).toUpperCase() + label.slice(1));
  if (source.missing) {
    box.replaceChildren(title, element("p", { class: "bad" }, `No data in this event: ${source.remarks.map(words).join(", ")}.`));
    return;
  }
  const fields = element("dl", {}, ...source.fields.flatMap(({ name, value }) => [element("dt", {}, name), element("dd", {}, String(value))]));
  const cut = 2 * source.bytes > source.hex.length ? `the first ${grouped(source.hex.length / 2)} of ${grouped(source.bytes)} bytes` : bytes(source.bytes);
  const remarks = source.remarks.map((remark) => element("p", { class: source.doubtful ? "bad" : "quiet" }, words(remark)));
  box.replaceChildren(title, ...remarks, fields, element("p", { class: "quiet" }, cut), element("pre", { tabindex: "0", "aria-label": "bytes" }, dump(source.hex)));
}

// Screen readers read an event only while the display does not follow the newest.
function setAloud() {
  const aloud = byId("event-follow").checked ? "off" : "polite";
  for (const id of ["event-what", "event-detail"]) byId(id).setAttribute("aria-live", aloud);
}

function showEvent() {
  setAloud();
  const missing = event.sources.filter((source) => source.missing).length;
  const gone = missing > 0 ? `, ${missing} missing` : "";
  // Gateways have no lumisections.
  const lumisection = event.lumisection > 0 ? ` of lumisection ${event.lumisection}` : "";
  const when = `${clock(event.taken_ns)}, event ${event.key}${lumisection}, built by ${event.builder}`;
  setText(byId("event-what"), `${when}: ${grouped(event.sources.length)} sources${gone}, ${bytes(event.bytes)}`);
  const sizes = event.sources.filter((source) => !source.missing).map((source) => source.bytes);
  setText(byId("event-statistics"), statisticsText(statistics(sizes), bytes).replace("Entries", "Fragments"));
  showBars();
  showDetail();
}

const table = () => [
  ["event", "source", "name", "bytes", "missing", "remarks"],
  ...event.sources.map(({ id, bytes: size, missing, remarks }) => [event.key, id, sourceLabel(id), size, missing, remarks.join("; ")]),
];

// The bars as a picture.
function draw() {
  const [step, height] = [Math.max(2, Math.min(48, Math.floor(1200 / event.sources.length))), HIGHEST_PIXELS + 24];
  const canvas = element("canvas", { width: String(Math.max(400, step * event.sources.length)), height: String(height) });
  const context = canvas.getContext("2d");
  const most = Math.max(1, ...event.sources.map((source) => source.bytes));
  event.sources.forEach((source, index) => {
    const bar = source.missing ? HIGHEST_PIXELS : heightOf(source.bytes, most);
    context.fillStyle = colour(source.missing ? "--bad" : source.doubtful ? "--wait" : "--accent");
    context.fillRect(index * step, HIGHEST_PIXELS - bar, step - 1, bar);
    if (step >= 24) context.fillText(String(source.id), index * step, height - 8);
  });
  return canvas;
}

async function ask() {
  const kind = byId("event-kind").value;
  const answer = await fetch(`/api/v1/events/sample${kind ? `?${kind}=true` : ""}`);
  const reply = await answer.json();
  if (answer.ok) {
    event = reply;
    showEvent();
  } else {
    // The last event stays; the text says why there is no other one.
    setText(byId("event-what"), reply.error);
    notBefore = performance.now() + AFTER_NONE_MILLISECONDS;
  }
}

// One request at a time, as the server waits for an event; after the first one, only while the display is in view.
function look() {
  const isWanted = !event || byId("event-follow").checked;
  if (asks || document.hidden || (hasAsked && !isInView) || !isRunning || !isWanted || performance.now() < notBefore) return;
  asks = true;
  hasAsked = true;
  ask().catch(() => {}).finally(() => { asks = false; });
}

export function show(live) {
  const wasRunning = isRunning;
  // Before the first event there is nothing to ask for.
  isRunning = live.state === "running" && live.ledger.events.built + live.ledger.events.incomplete_emitted > 0;
  if (!event && isRunning !== wasRunning) setText(byId("event-what"), live.state === "running" ? "Waiting for an event." : "No run is going on.");
}

function pick(source) {
  picked = source;
  // The event that the operator reads must stay.
  byId("event-follow").checked = false;
  setAloud();
  showBars();
  showDetail();
}

export function begin() {
  const bars = byId("event-bars");
  bars.addEventListener("click", (click) => {
    const bar = click.target.closest("button");
    if (bar) pick(Number(bar.dataset.source));
  });
  bars.addEventListener("keydown", (press) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[press.key];
    const to = step && [...bars.children].indexOf(document.activeElement) + step;
    if (!step || !bars.children[to]) return;
    press.preventDefault();
    pick(Number(bars.children[to].dataset.source));
    bars.children[to].focus();
  });
  for (const id of ["event-follow", "event-kind"]) {
    byId(id).addEventListener("change", () => {
      notBefore = 0;
      if (id === "event-kind") byId("event-follow").checked = true;
      look();
    });
  }
  byId("event-log").addEventListener("change", () => event && showBars());
  byId("event-csv").addEventListener("click", () => event && saveCsv(`ropewalk-event-${event.key}.csv`, table()));
  byId("event-png").addEventListener("click", () => event && savePng(`ropewalk-event-${event.key}.png`, [{ text: byId("event-what").textContent, canvas: draw() }]));
  new IntersectionObserver(([seen]) => {
    isInView = seen.isIntersecting;
    look();
  }).observe(bars);
  setInterval(look, EVERY_MILLISECONDS);
}
