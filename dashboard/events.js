// The event display: a sampled event as a bar for each source, and what one of them sent.

import { byId, bytes, element, grouped, setText } from "./format.js";

const EVERY_MILLISECONDS = 1000;
const HIGHEST_PIXELS = 120;
const BYTES_IN_A_LINE = 16;

let event = null;
let asking = 0; // a server that has no samples is not asked again
let picked = null; // a source's id

// Bytes as they are looked at: where they stand, in hexadecimal digits, and as letters.
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

function key(value) {
  if (value === null || typeof value !== "object") return String(value);
  return Object.entries(value).map(([name, part]) => `${name} ${part}`).join(", ");
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
    bar.className = `event-bar${source.missing ? " missing" : ""}`;
    bar.setAttribute("aria-pressed", String(isPicked));
    bar.setAttribute("aria-label", source.missing ? `source ${source.id} is missing` : `source ${source.id}, ${grouped(source.bytes)} bytes`);
    // One stop for the tabulator; arrow keys go from source to source.
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
    box.replaceChildren(title, element("p", {}, "It is missing in this event."));
    return;
  }
  const fields = element("dl", {}, ...source.fields.flatMap(({ name, value }) => [element("dt", {}, name), element("dd", {}, String(value))]));
  const cut = 2 * source.bytes > source.hex.length ? `the first ${grouped(source.hex.length / 2)} of ${grouped(source.bytes)} bytes` : bytes(source.bytes);
  box.replaceChildren(title, fields, element("p", { class: "quiet" }, cut), element("pre", { tabindex: "0", "aria-label": "bytes" }, dump(source.hex)));
}

function show() {
  byId("event-display").hidden = false;
  const missing = event.sources.filter((source) => source.missing).length;
  const all = event.sources.reduce((sum, source) => sum + source.bytes, 0);
  const gone = missing > 0 ? `, ${missing} missing` : "";
  setText(byId("event-what"), `${key(event.key)}: ${grouped(event.sources.length)} sources${gone}, ${bytes(all)}`);
  showBars();
  showDetail();
}

async function look() {
  if (document.hidden || (event && !byId("event-follow").checked)) return;
  const answer = await fetch("/api/v1/events/sample");
  if (answer.status === 404) clearInterval(asking);
  if (!answer.ok || answer.status === 204) return;
  const sample = await answer.json();
  if (!sample?.sources) return;
  event = sample;
  show();
}

function pick(source) {
  picked = source;
  // What is read must not run away.
  byId("event-follow").checked = false;
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
  const again = () => look().catch(() => {});
  byId("event-follow").addEventListener("change", again);
  again();
  asking = setInterval(again, EVERY_MILLISECONDS);
}
