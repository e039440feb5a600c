// The dashboard: shows what /api/v1/live/stream sends, and gives commands. No library, nothing from elsewhere.
"use strict";

const HISTORY_SECONDS = 300;
// A source that sends nothing while a run goes on is shown as silent after so long, or after so many of its usual intervals.
const SILENT_MILLISECONDS = 1000;
const SILENT_INTERVALS = 5;

const byId = (id) => document.getElementById(id);
const grouped = (number) => Math.round(number).toLocaleString("en-US");

function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (number >= 1000 && unit + 1 < units.length) { number /= 1000; unit += 1; }
  return `${number.toFixed(number < 10 && unit > 0 ? 2 : number < 100 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}

function span(seconds) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${two(seconds / 3600)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}`;
}

let before = null;      // the last view
let rates = [];         // [milliseconds, events per second]
let lastEntry = 0;      // of the journal
const spoke = new Map(); // source id -> { first, since, received, at }: when it was seen first, and spoke last

function setNotice(text) {
  const notice = byId("notice");
  notice.hidden = !text;
  notice.textContent = text || "";
}

function ratesOf(live) {
  if (!before || before.run !== live.run || live.at_ns <= before.at_ns) return null;
  const seconds = (live.at_ns - before.at_ns) / 1e9;
  const events = (view) => view.ledger.events.built + view.ledger.events.incomplete_emitted;
  const rate = (value) => Math.max(0, value(live) - value(before)) / seconds;
  const old = new Map(before.sources.map((source) => [source.id, source.received]));
  return {
    events: rate(events),
    received: rate((view) => view.bytes_received),
    written: rate((view) => view.bytes_written),
    sources: new Map(live.sources.map((source) => [source.id, (source.received - (old.get(source.id) ?? 0)) / seconds])),
  };
}

function showState(live) {
  const state = byId("state");
  state.textContent = live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state;
  state.className = `state ${live.state}`;
  byId("run").textContent = live.run ? `run ${live.run}` : "no run";
  document.title = `${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = !live.allowed.includes(button.dataset.command);
  }
  setNotice(live.trouble);
}

function showAlarms(live) {
  byId("limit").textContent = live.limit ? live.limit.sentence : "";
  const box = byId("alarms");
  box.hidden = live.alarms.length === 0;
  const shown = JSON.stringify(live.alarms.map((alarm) => [alarm.name, alarm.state]));
  // Made anew only where something changed, so that a button stays where it is pressed.
  if (box.dataset.shown === shown) return;
  box.dataset.shown = shown;
  box.replaceChildren(...live.alarms.map((alarm) => {
    const line = document.createElement("p");
    line.className = alarm.severity;
    line.append(`${alarm.name.replaceAll("_", " ")} (${alarm.state})`);
    if (alarm.state !== "acknowledged") {
      const button = document.createElement("button");
      button.textContent = "Acknowledge";
      button.setAttribute("aria-label", `acknowledge ${alarm.name}`);
      button.addEventListener("click", () => give(`alarms/${alarm.name}/acknowledge`).catch((error) => setNotice(String(error))));
      line.append(button);
    }
    return line;
  }));
}

function showNumbers(live, rate) {
  const set = (id, text) => { byId(id).textContent = text; };
  if (rate) {
    set("event-rate", grouped(rate.events));
    set("bandwidth-in", `${bytes(rate.received)}/s`);
    set("bandwidth-out", `${bytes(rate.written)}/s`);
  }
  const { events, fragments, pools } = live.ledger;
  set("built", grouped(events.built + events.incomplete_emitted));
  set("lost", grouped(fragments.lost));
  byId("lost").parentElement.classList.toggle("bad", fragments.lost > 0);
  set("pool", pools.blocks ? `${Math.round(100 * pools.held / pools.blocks)} %` : "–");
  set("age", span(live.age_s));
  const room = live.disk_free_bytes === null ? "–" : bytes(live.disk_free_bytes);
  set("disk", live.disk_left_s === null ? room : `${room} · ${span(live.disk_left_s)}`);
}

function rows(table, lines) {
  const body = table.tBodies[0];
  while (body.rows.length > lines.length) body.deleteRow(-1);
  while (body.rows.length < lines.length) body.insertRow();
  lines.forEach(({ cells, kind }, index) => {
    const row = body.rows[index];
    row.className = kind ?? "";
    while (row.cells.length < cells.length) row.insertCell();
    cells.forEach((text, column) => {
      if (row.cells[column].textContent !== text) row.cells[column].textContent = text;
    });
  });
}

function showLedger(live) {
  const { fragments, events, pools, unbalanced } = live.ledger;
  const line = (name, value) => ({ cells: [name, grouped(value)] });
  rows(byId("ledger"), [
    line("fragments received", fragments.received),
    line("in complete events", fragments.in_complete_events),
    line("in incomplete events", fragments.in_incomplete_events),
    line("in flight", fragments.in_flight),
    line("lost", fragments.lost),
    line("events built", events.built),
    line("incomplete", events.incomplete_emitted),
    line("accepted", events.accepted),
    line("rejected", events.rejected),
    line("written", events.written),
    line("buffers held", pools.held),
  ]);
  const balance = byId("balance");
  // While data flow, numbers of different nodes are of different moments.
  const isLive = ["running", "paused", "draining"].includes(live.state);
  const good = unbalanced.length === 0;
  balance.className = `balance ${good ? "good" : isLive ? "" : "bad"}`;
  balance.textContent = good ? "balanced" : isLive ? "in motion" : unbalanced.map((one) => one.equation).join(", ");
}

function isQuiet(source, now) {
  let known = spoke.get(source.id);
  // Another run counts anew.
  if (!known || source.received < known.received) {
    known = { first: source.received, since: now, received: source.received, at: now };
    spoke.set(source.id, known);
  }
  if (source.received > known.received) {
    known.received = source.received;
    known.at = now;
  }
  const interval = (known.at - known.since) / Math.max(1, known.received - known.first);
  return now - known.at > Math.max(SILENT_MILLISECONDS, SILENT_INTERVALS * interval);
}

function showSources(live, rate) {
  const now = performance.now();
  byId("source-count").textContent = `(${live.sources.length})`;
  rows(byId("sources"), live.sources.map((source) => {
    const quiet = isQuiet(source, now);
    const missing = Object.values(source.missing).reduce((sum, count) => sum + count, 0);
    const each = rate?.sources.get(source.id);
    return {
      kind: quiet && live.state === "running" ? "silent" : "",
      cells: [
        String(source.id), each === undefined ? "–" : grouped(each), grouped(source.received), grouped(missing),
        grouped(source.lost), grouped(source.crc_errors + source.frames_missing),
      ],
    };
  }));
}

function showNodes(live) {
  const list = byId("nodes");
  const names = live.nodes.map((node) => `${node.role === "readout" ? "ru" : "bu"}${node.index}`);
  while (list.children.length > names.length) list.lastChild.remove();
  while (list.children.length < names.length) list.append(document.createElement("li"));
  names.forEach((name, index) => {
    const item = list.children[index];
    const away = !live.nodes[index].connected;
    item.textContent = away ? `${name} is away` : name;
    item.className = away ? "away" : "";
  });
}

function drawRate() {
  const canvas = byId("rate");
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth * scale, height = canvas.clientHeight * scale;
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const style = getComputedStyle(document.documentElement);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const most = Math.max(1, ...rates.map(([, rate]) => rate));
  const last = rates.length ? rates[rates.length - 1][0] : 0;
  const left = 70 * scale;
  context.fillStyle = style.getPropertyValue("--quiet");
  context.strokeStyle = style.getPropertyValue("--line");
  context.font = `${12 * scale}px system-ui`;
  for (const part of [0, 0.5, 1]) {
    const y = height - 8 * scale - part * (height - 24 * scale);
    context.fillText(grouped(most * part), 0, y + 4 * scale);
    context.beginPath(); context.moveTo(left, y); context.lineTo(width, y); context.stroke();
  }
  context.strokeStyle = style.getPropertyValue("--accent");
  context.lineWidth = 2 * scale;
  context.beginPath();
  for (const [at, rate] of rates) {
    const x = width - (last - at) / (HISTORY_SECONDS * 1000) * (width - left);
    const y = height - 8 * scale - rate / most * (height - 24 * scale);
    context.lineTo(x, y);
  }
  context.stroke();
}

// One question at a time, or entries would come twice.
let asksJournal = false;

async function showJournal() {
  if (asksJournal) return;
  asksJournal = true;
  try {
    await readJournal();
  } finally {
    asksJournal = false;
  }
}

async function readJournal() {
  const answer = await fetch(`/api/v1/journal?after=${lastEntry}`);
  const list = byId("journal");
  for (const entry of await answer.json()) {
    lastEntry = Math.max(lastEntry, entry.number);
    const item = document.createElement("li");
    item.className = `kind-${entry.kind}`;
    const time = document.createElement("time");
    time.textContent = new Date(entry.at_ns / 1e6).toLocaleTimeString();
    item.append(time, `${entry.run ? `run ${entry.run}: ` : ""}${entry.text}`);
    list.prepend(item);
  }
  while (list.children.length > 200) list.lastChild.remove();
}

function show(live) {
  const rate = ratesOf(live);
  showState(live);
  showAlarms(live);
  showNumbers(live, rate);
  showLedger(live);
  showNodes(live);
  showSources(live, rate);
  const now = live.at_ns / 1e6;
  rates.push([now, rate ? rate.events : 0]);
  rates = rates.filter(([at]) => at > now - HISTORY_SECONDS * 1000);
  drawRate();
  // A server that was started anew counts anew.
  if (live.last_entry < lastEntry) { lastEntry = 0; byId("journal").replaceChildren(); }
  if (live.last_entry > lastEntry) showJournal().catch(() => {});
  before = live;
}

async function give(what) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const answer = await fetch(`/api/v1/${what}?by=dashboard`, { method: "POST", headers });
  if (answer.status === 401) {
    const given = window.prompt("The token of this server's file:");
    if (given) { sessionStorage.setItem("token", given); return give(what); }
    return undefined;
  }
  const reply = await answer.json();
  if (!answer.ok) setNotice(reply.text || reply.error);
  return undefined;
}

for (const button of document.querySelectorAll("[data-command]")) {
  button.disabled = true;
  button.addEventListener("click", () => {
    button.disabled = true;
    give(`commands/${button.dataset.command}`).catch((error) => setNotice(String(error)));
  });
}

const stream = new EventSource("/api/v1/live/stream");
stream.addEventListener("live", (event) => show(JSON.parse(event.data)));
stream.addEventListener("error", () => {
  const state = byId("state");
  state.textContent = "no answer";
  state.className = "state gone";
  setNotice("The server does not answer; this page connects again by itself.");
});
fetch("/api/v1/live").then((answer) => answer.json()).then(show).catch(() => {});
