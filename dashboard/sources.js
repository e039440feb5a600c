// The tables of sources and of units. Seven hundred sources are usual: they are sorted, and filtered by id, name, unit or status.

import * as counters from "./counters.js";
import { ask, notice } from "./dialogs.js";
import { ago, bandwidth, byId, bytes, element, fill, grouped, heads, percent, setText, sourceLabel } from "./format.js";
import { whyNot } from "./operator.js";
import { currentProblems } from "./quality.js";
import { give } from "./requests.js";

// During a run, a source is silent after this time without data, or after this many of its usual intervals.
const SILENT_SECONDS = 1;
const SILENT_INTERVALS = 5;
// Share of the time from which on a source counts as held back.
const HELD_BACK = 0.1;

// Sources that were connected. The server never counts a source of datagrams as connected.
const connected = new Set();

export const isMasked = (source) => source.taking === "masked";

// Masked, or not in events again: events do not wait for it.
const isOut = (source) => isMasked(source) || source.taking === "asked_back";

// Events do not need it, and it never came.
const isOptionalAndAway = (source) => Boolean(source.is_optional) && source.received === 0;

// Its readout unit is not connected or does not report: nothing is known of the source, and the unit is at fault.
const unitOf = (source, live) => live.nodes?.find((node) => node.name === source.readout);
const isUnitAway = (source, live) => {
  const unit = unitOf(source, live);
  return unit !== undefined && (!unit.connected || unit.silent);
};

// It lost its connection without having ended.
const isAway = (source) => !isOut(source) && !isOptionalAndAway(source) && !source.is_connected && !source.has_ended && connected.has(source.id);

// For how many seconds a source has been silent; 0 for one that sends.
function silentFor(source, live) {
  if (source.has_ended || isOut(source) || isOptionalAndAway(source)) return 0;
  const seconds = source.received > 0 ? source.silent_s ?? 0 : live.age_s;
  const interval = live.age_s / Math.max(1, source.received);
  return seconds > Math.max(SILENT_SECONDS, source.received > 0 ? SILENT_INTERVALS * interval : 0) ? seconds : 0;
}

export const isSilent = (source, live) => live.state === "running" && !isUnitAway(source, live) && (isAway(source) || silentFor(source, live) > 0);

export const hasNeverSent = (source, live) => isSilent(source, live) && source.received === 0;

export const missingOf = (source) => Object.values(source.missing).reduce((sum, count) => sum + count, 0);
const errorsOf = (source) => source.crc_errors + source.frames_missing + source.corrupt;

// Events by which a source is behind the others of its readout unit, with the time if that can be seen.
function behind({ behind, rates }) {
  if (behind === undefined || behind === null) return "–";
  const seconds = rates?.fragments_hz > 0 ? behind / rates.fragments_hz : 0;
  return seconds < 0.05 ? grouped(behind) : `${grouped(behind)} (${seconds.toFixed(1)} s)`;
}

// { head, value: the sort key, text }; a source has its rates and its status in it.
const COLUMNS = [
  { head: "source", value: (source) => source.id, text: (source) => (source.name ? `${source.name} (${source.id})` : String(source.id)) },
  { head: "status", value: (source) => source.order, text: (source) => source.status },
  { head: "missing", value: missingOf, text: (source) => grouped(missingOf(source)) },
  { head: "lost", value: (source) => source.lost, text: (source) => grouped(source.lost) },
  { head: "errors", value: errorsOf, text: (source) => grouped(errorsOf(source)) },
  { head: "rate / s", value: (source) => source.rates?.fragments_hz ?? -1, text: (source) => (source.rates ? grouped(source.rates.fragments_hz) : "–") },
  { head: "bytes / s", value: (source) => source.rates?.bytes_per_second ?? -1, text: (source) => (source.rates ? bytes(source.rates.bytes_per_second) : "–") },
  { head: "received", value: (source) => source.received, text: (source) => grouped(source.received) },
  { head: "behind", value: (source) => source.behind ?? -1, text: behind },
  { head: "held back", value: (source) => source.rates?.back_pressure_share ?? -1, text: (source) => (source.rates ? percent(source.rates.back_pressure_share) : "–") },
  { head: "unit", value: (source) => source.unit ?? "", text: (source) => source.unit ?? "–" },
];

let sorted = { column: 0, isDown: false };
let last = null;

// Status of a source with a current problem.
const PROBLEMS = {
  source_restarted: "restarted",
  source_out_of_step: "out of step",
  wrong_source: "wrong source",
  bunch_crossing_mismatch: "wrong bunch crossing",
  source_stays_out: "not in events",
  checksums_wrong: "wrong checksums",
  fragments_faulty: "faulty fragments",
  fragments_lost: "fragments lost",
  events_incomplete: "fragments missing",
};

// The status of a source, and how urgent it is: 0 first.
function statusOf(source, live, problems) {
  const silent = silentFor(source, live);
  if (live.state !== "running") return ["–", 3];
  if (isMasked(source)) return ["masked", 1];
  if (source.taking === "asked_back") return ["unmasked, not in events", 1];
  if (source.has_ended) return ["ended", 3];
  if (isUnitAway(source, live)) return [unitOf(source, live).connected ? "unit does not report" : "unit not connected", 1];
  if (isOptionalAndAway(source)) return ["never sent", 2];
  if (isAway(source)) return ["not connected", 0];
  if (hasNeverSent(source, live)) return ["never sent", 0];
  if (silent > 0) return [`silent for ${ago(silent)}`, 0];
  const problem = PROBLEMS[problems.get(source.id)];
  if (problem) return [problem, 0];
  if ((source.rates?.back_pressure_share ?? 0) > HELD_BACK) return ["held back", 1];
  return ["sending", 2];
}

const isTroubled = (source) => source.order < 2 || source.lost > 0 || errorsOf(source) > 0 || missingOf(source) > 0;

// Whether a source matches a filter such as `7, 20-39, ru1, silent`: one of its words is enough.
export function isMeant(source, filter) {
  const asked = filter.toLowerCase().split(/[\s,]+/).filter(Boolean);
  if (asked.length === 0) return true;
  return asked.some((word) => {
    const range = /^(\d+)-(\d+)$/.exec(word);
    if (range) return source.id >= Number(range[1]) && source.id <= Number(range[2]);
    if (/^\d+$/.test(word)) return source.id === Number(word);
    return source.readout === word || Boolean(source.unit?.toLowerCase().startsWith(`${word} (`)) || source.status.includes(word) || Boolean(source.name?.toLowerCase().includes(word));
  });
}

function shownOf(sources) {
  const filter = byId("source-filter").value;
  const onlyTroubled = byId("source-troubled").checked;
  return sources.filter((source) => isMeant(source, filter) && (!onlyTroubled || isTroubled(source)));
}

// Ids of the sources whose rows are selected. Without a selection, the buttons are for the sources that a filter shows.
const selected = new Set();

function chosenOf(sources) {
  const marked = sources.filter((source) => selected.has(source.id));
  return marked.length > 0 ? marked : shownOf(sources);
}

// What each button does with the chosen sources.
const DEEDS = {
  "source-mask": {
    name: "Mask",
    question: (whose) => `Take ${whose} out of this run and the next ones?`,
    carryOut: (sources) => give("masks", {}, { sources, is_masked: true }),
  },
  "source-unmask": {
    name: "Unmask",
    question: (whose) => `Take ${whose} into this run and the next ones again?`,
    carryOut: (sources) => give("masks", {}, { sources, is_masked: false }),
  },
  "source-restart": {
    name: "Restart",
    question: (whose) => `Take ${whose} out of this run, and in again from the next event that comes?`,
    carryOut: async (sources) => {
      const told = await give("masks/restart", {}, { sources });
      if (told) notice(told.restarted.map(({ source, out_from }) => `${capital(sourceLabel(source))} is out from event ${out_from} on, until it sends.`).join(" "));
    },
  },
};

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

async function carryOut({ name, question, carryOut: begin }) {
  const sources = chosenOf(last.sources).map((source) => source.id);
  const whose = sources.length === 1 ? sourceLabel(sources[0]) : `${sources.length} sources`;
  const said = await ask({
    title: `${name} ${sources.length === 1 ? "a source" : `${sources.length} sources`}`,
    text: `${question(whose)}${sources.length === 1 ? "" : ` These are ${sources.map(sourceLabel).join(", ")}.`}`,
    agree: name,
  });
  if (said) await begin(sources);
}

function render() {
  const { live, sources } = last;
  const shown = shownOf(sources);
  const chosen = chosenOf(sources);
  const isChosen = chosen.length > 0 && chosen.length < sources.length;
  const isMarked = sources.some((source) => selected.has(source.id));
  for (const id of Object.keys(DEEDS)) byId(id).disabled = !isChosen || Boolean(whyNot());
  byId("source-clear").classList.toggle("off", !isMarked);
  const what = `${grouped(chosen.length)} ${isMarked ? "selected" : "shown"}`;
  setText(byId("mask-why"), whyNot() || (isChosen ? what : isMarked ? "one source must stay" : "select rows to mask sources"));
  const { value } = COLUMNS[sorted.column];
  const sign = sorted.isDown ? -1 : 1;
  // Equal sources stay in the order of their ids, so that rows keep their places.
  shown.sort((one, other) => {
    const [left, right] = [value(one), value(other)];
    return left === right ? one.id - other.id : left < right ? -sign : sign;
  });
  const bad = sources.filter((source) => source.order === 0).length;
  const count = shown.length === sources.length ? grouped(sources.length) : `${grouped(shown.length)} of ${grouped(sources.length)}`;
  setText(byId("source-count"), `(${count}${bad > 0 ? `, ${grouped(bad)} with problems` : ""})`);
  const table = byId("sources");
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.source : undefined;
  fill(table, shown.map((source) => ({
    kind: ["silent", "held-back", "", ""][source.order],
    cells: COLUMNS.map((column, place) => (place === 0 ? null : column.text(source))),
  })));
  shown.forEach((source, index) => showHead(table.tBodies[0].rows[index].cells[0], source));
  // The focus stays on the source if its row moves.
  if (focused && document.activeElement.dataset.source !== focused) table.querySelector(`[data-source="${focused}"]`)?.focus();
  counters.show(chosen.length === 1 ? chosen[0] : null);
  showNodes(live);
}

// The first cell of a row: the name, and whether the row is selected.
function showHead(cell, source) {
  if (!cell.firstChild) cell.append(element("label", {}, element("input", { type: "checkbox" }), element("span")));
  const [box, name] = cell.firstChild.children;
  box.checked = selected.has(source.id);
  box.dataset.source = source.id;
  setText(name, COLUMNS[0].text(source));
}

// A click anywhere in a row selects it; with the keyboard, the space bar at its box does.
function select(event) {
  const box = event.target.closest("tr")?.querySelector("input");
  const isLabel = event.target.closest("label") !== null;
  // The label passes a click on to its box. A text that was marked with the mouse is to be copied.
  if (!box || (isLabel ? event.target !== box : String(getSelection()) !== "")) return;
  if (!isLabel) box.checked = !box.checked;
  if (box.checked) selected.add(Number(box.dataset.source));
  else selected.delete(Number(box.dataset.source));
  render();
}

export function show(live) {
  const rates = new Map((live.rates?.sources ?? []).map((source) => [source.source, source]));
  const problems = currentProblems(live);
  const sources = live.sources.map((source) => {
    if (source.is_connected) connected.add(source.id);
    const known = { ...source, rates: rates.get(source.id) };
    [known.status, known.order] = statusOf(known, live, problems);
    return known;
  });
  last = { live, sources };
  render();
}

// What this page may do has changed.
export function showHeld() {
  if (last) render();
}

function showNodes(live) {
  const rates = new Map((live.rates?.nodes ?? []).map((node) => [node.node, node]));
  const share = (value) => (value === null || value === undefined ? "–" : percent(value));
  fill(byId("nodes"), live.nodes.map((node) => {
    const known = rates.get(node.name);
    return {
      kind: node.connected && !node.silent ? "" : "silent",
      cells: [
        node.label, !node.connected ? "not connected" : node.silent ? "does not report" : "connected", known ? grouped(known.rate_hz) : "–",
        known ? bandwidth(known.bytes_per_second) : "–", share(known?.pool_share), share(known?.busy_share),
        share(known?.filter_busy_share), share(known?.disk_busy_share),
      ],
    };
  }));
}

function sortBy(column) {
  sorted = { column, isDown: sorted.column === column ? !sorted.isDown : column > 1 };
  showHeads();
  if (last) render();
}

function showHeads() {
  const row = byId("sources").tHead.rows[0];
  COLUMNS.forEach((_, column) => {
    const order = sorted.column !== column ? "none" : sorted.isDown ? "descending" : "ascending";
    row.cells[column].setAttribute("aria-sort", order);
  });
}

export function begin() {
  const row = element("tr", {}, ...COLUMNS.map(({ head }, column) => {
    const button = element("button", { class: "head" }, head);
    button.addEventListener("click", () => sortBy(column));
    return element("th", { scope: "col" }, button);
  }));
  // A head of which a few pixels are visible is not scrolled into view by all browsers.
  row.addEventListener("focusin", ({ target }) => target.scrollIntoView({ block: "nearest", inline: "nearest" }));
  byId("sources").tHead.replaceChildren(row);
  showHeads();
  counters.begin();
  heads(byId("nodes"), ["unit", "status", "rate / s", "bytes / s", "buffers", "busy", "filter", "disk"]);
  for (const [id, deed] of Object.entries(DEEDS)) {
    byId(id).addEventListener("click", () => carryOut(deed).catch((error) => notice(String(error))));
  }
  byId("sources").tBodies[0].addEventListener("click", select);
  byId("source-clear").addEventListener("click", () => {
    selected.clear();
    render();
  });
  for (const [id, kind] of [["source-filter", "input"], ["source-troubled", "change"]]) {
    byId(id).addEventListener(kind, () => { if (last) render(); });
  }
}
