// The event display: a sampled event with a bar for each source, and the data of one of them.

import { byId, bytes, clock, element, grouped, setText, words } from "./format.js";

const EVERY_MILLISECONDS = 1000;
const AFTER_NONE_MILLISECONDS = 5000;
const HIGHEST_PIXELS = 120;
const BYTES_IN_A_LINE = 16;

let event = null;
let isRunning = null;
let isInView = false;
let asks = false;
let notBefore = 0;
let picked = null; // a source's id

// A hex dump: offset, hexadecimal digits, and characters.
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

function showBars() {
  const most = Math.max(1, ...event.sources.map((source) => source.bytes));
  const box = byId("event-bars");
  while (box.children.length > event.sources.length) box.lastChild.remove();
  while (box.children.length < event.sources.length) box.append(element("button", { class: "event-bar" }, element("i"), element("span")));
  const isThere = event.sources.some((source) => source.id === picked);
  event.sources.forEach((source, index) => {
    const bar = box.children[index];
    const [stick, name] = bar.children;
    const isPicked = source.id === picked;
    bar.className = `event-bar ${source.missing ? "missing" : source.doubtful ? "doubtful" : ""}`;
    bar.setAttribute("aria-pressed", String(isPicked));
    bar.setAttribute("aria-label", [source.missing ? `source ${source.id} is missing` : `source ${source.id}, ${grouped(source.bytes)} bytes`, ...source.remarks].join(", "));
    // One tab stop; arrow keys move between sources.
    bar.tabIndex = isPicked || (!isThere && index === 0) ? 0 : -1;
    bar.dataset.source = source.id;
    stick.style.height = `${source.missing ? HIGHEST_PIXELS : Math.max(2, HIGHEST_PIXELS * source.bytes / most)}px`;
    setText(name, String(source.id));
  });
}

function showDetail() {
  const box = byId("event-detail");
  const source = event.sources.find((one) => one.id === picked);
  if (!source) {
    box.replaceChildren(element("p", { class: "quiet" }, "Choose a source to see what it sent."));
    return;
  }
  const title = element("h3", {}, `Source ${source.id}`);
  if (source.missing) {
    box.replaceChildren(title, element("p", { class: "bad" }, `Missing in this event: ${source.remarks.map(words).join(", ")}.`));
    return;
  }
  const fields = element("dl", {}, ...source.fields.flatMap(({ name, value }) => [element("dt", {}, name), element("dd", {}, String(value))]));
  const cut = 2 * source.bytes > source.hex.length ? `the first ${grouped(source.hex.length / 2)} of ${grouped(source.bytes)} bytes` : bytes(source.bytes);
  const remarks = source.remarks.map((remark) => element("p", { class: source.doubtful ? "bad" : "quiet" }, words(remark)));
  box.replaceChildren(title, ...remarks, fields, element("p", { class: "quiet" }, cut), element("pre", { tabindex: "0", "aria-label": "bytes" }, dump(source.hex)));
}

// Screen readers announce only a selected event.
function setAloud() {
  const aloud = byId("event-follow").checked ? "off" : "polite";
  for (const id of ["event-what", "event-detail"]) byId(id).setAttribute("aria-live", aloud);
}

function showEvent() {
  setAloud();
  const missing = event.sources.filter((source) => source.missing).length;
  const gone = missing > 0 ? `, ${missing} missing` : "";
  // Gateways have no trigger type.
  const lumisection = event.lumisection > 0 ? ` of lumisection ${event.lumisection}` : "";
  const when = `${clock(event.taken_ns)}, event ${event.key}${lumisection}, built by ${event.builder}`;
  setText(byId("event-what"), `${when}: ${grouped(event.sources.length)} sources${gone}, ${bytes(event.bytes)}`);
  showBars();
  showDetail();
}

async function ask() {
  const kind = byId("event-kind").value;
  const answer = await fetch(`/api/v1/events/sample${kind ? `?${kind}=true` : ""}`);
  const told = await answer.json();
  if (answer.ok) {
    event = told;
    showEvent();
  } else {
    // If there is no new event for a while, the last one stays, with the reason.
    setText(byId("event-what"), told.error);
    notBefore = performance.now() + AFTER_NONE_MILLISECONDS;
  }
}

// One request at a time, because the server waits for an event; none while the page is hidden.
function look() {
  const isWanted = !event || byId("event-follow").checked;
  if (asks || document.hidden || !isInView || !isRunning || !isWanted || performance.now() < notBefore) return;
  asks = true;
  ask().catch(() => {}).finally(() => { asks = false; });
}

export function show(live) {
  const wasRunning = isRunning;
  isRunning = live.state === "running";
  if (!event && isRunning !== wasRunning) setText(byId("event-what"), isRunning ? "" : "No run is active.");
}

function pick(source) {
  picked = source;
  // A selected event stays on the page.
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
  new IntersectionObserver(([seen]) => {
    isInView = seen.isIntersecting;
    look();
  }).observe(bars.closest("section"));
  setInterval(look, EVERY_MILLISECONDS);
}
