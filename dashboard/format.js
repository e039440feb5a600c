// Numbers as text, and elements of the page.

export const byId = (id) => document.getElementById(id);

export const grouped = (number) => Math.round(number).toLocaleString("en-US");

// A number in little room: 9,999, then 12.3 k, 4.56 M.
export function compact(number) {
  if (number < 10000) return grouped(number);
  return number < 1e6 ? `${(number / 1e3).toPrecision(3)} k` : `${(number / 1e6).toPrecision(3)} M`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(number) {
  let unit = 0;
  while (number >= 1000 && unit + 1 < UNITS.length) { number /= 1000; unit += 1; }
  const digits = unit === 0 || number >= 100 ? 0 : number < 10 ? 2 : 1;
  return `${number.toFixed(digits)} ${UNITS[unit]}`;
}

export const bandwidth = (number) => `${bytes(number)}/s`;

export const percent = (share) => `${Math.round(100 * share)} %`;

// Seconds as days, hours, minutes and seconds.
export function span(seconds) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  const days = Math.floor(seconds / 86400);
  const rest = `${two(seconds / 3600 % 24)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${rest}` : rest;
}

// A short time: 4.2 s, 3 min, 2 h, 5 days.
export function ago(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

// Nanoseconds as a duration in a fitting unit.
export function duration(nanoseconds) {
  for (const [unit, one] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (nanoseconds >= one) return `${+(nanoseconds / one).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(nanoseconds)} ns`;
}

// Nanoseconds since 1970 as local time of day.
export const clock = (nanoseconds) => new Date(nanoseconds / 1e6).toLocaleTimeString("en-GB");

// The same, with the date unless it is today.
export function moment(nanoseconds) {
  const date = new Date(nanoseconds / 1e6);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? clock(nanoseconds) : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${clock(nanoseconds)}`;
}

export const words = (name) => name.replaceAll("_", " ");

// Makes an element with attributes; children that are not nodes become text.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Sets a text only if it differs: unchanged text is neither laid out nor read out again.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const said = new Map(); // element id -> text without numbers

// Gives a text to screen readers. Numbers change all the time: a text that differs only in numbers is not read out again.
export function say(id, text) {
  const words = text.replace(/\d[\d.,:]*/g, "");
  if (said.get(id) === words) return;
  said.set(id, words);
  setText(byId(id), text);
}

const names = new Map(); // source id -> name

export function learnNames(sources) {
  for (const { id, name } of sources) names.set(id, name);
}

// A source by name, with its id beside it, as the server's sentences have it; `source 7` without a name.
export const sourceLabel = (id) => (names.get(id) ? `${names.get(id)} (source ${id})` : `source ${id}`);

// The section of the manual about an alarm or a problem of the data.
export const manual = (name) => ({ href: `/manual/alarms#${encodeURIComponent(name)}`, target: "_blank", rel: "noopener", "aria-label": `What to do: ${words(name)}` });

// Replaces the children of a box. The keyboard focus stays on the same button, or goes to another one of the same place.
export function replaceKept(box, children) {
  const old = box.contains(document.activeElement) ? document.activeElement : null;
  box.replaceChildren(...children);
  if (!old) return;
  const buttons = [...box.querySelectorAll("button")];
  const label = old.getAttribute("aria-label");
  const place = old.dataset.place;
  (buttons.find((one) => one.getAttribute("aria-label") === label) ?? buttons.find((one) => place && one.dataset.place === place))?.focus();
}

// Fills a table's body in place, so that it does not jump and a selection stays: a row is { cells, kind }. A cell that is null is the
// caller's.
export function fill(table, lines) {
  const body = table.tBodies[0];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  while (body.rows.length < lines.length) body.insertRow();
  lines.forEach(({ cells, kind = "" }, index) => {
    const row = body.rows[index];
    if (row.className !== kind) row.className = kind;
    while (row.cells.length < cells.length) row.insertCell();
    cells.forEach((text, column) => { if (text !== null) setText(row.cells[column], text); });
  });
}

// Sets the column heads of a table.
export function heads(table, names) {
  const row = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  table.tHead.replaceChildren(row);
}
