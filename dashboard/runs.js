// Run history: the runs of the output directory with their notes, and the account of one run.

import { byId, bytes, element, grouped, heads, replaceKept, setText, span, words } from "./format.js";
import { whyNot } from "./operator.js";
import { give } from "./requests.js";

// Notes of other operators do not show in the live view: the list is read again after this time.
const EVERY_MILLISECONDS = 10000;

let shownFor = "";
let shownAt = 0;
let shown = "";
let presentRun = null;

const text = (value) => (value === null || value === undefined ? "–" : String(value));

// A note with its date.
const dated = (note) => `${new Date(note.at_ns / 1e6).toLocaleString("en-GB")}, ${note.by}: ${note.text}`;

// The newest note of a run and the number of earlier ones; the tooltip has all of them.
function noteCell(notes) {
  if (!notes.length) return element("td");
  const { by, text } = notes.at(-1);
  const others = notes.length > 1 ? ` (and ${grouped(notes.length - 1)} earlier)` : "";
  return element("td", { class: "said", title: notes.map(dated).join("\n") }, `${by}: ${text}${others}`);
}

const begun = (run) => (run.started_ns === null ? "–" : new Date(run.started_ns / 1e6).toLocaleString("en-GB"));

const statusOf = (run) => (run.has_account ? "ended" : run.run === presentRun ? "current" : "no account");

// A count of an account; the class applies where it is not 0.
const countCell = (count, kind = "") => element("td", { class: count ? `count ${kind}` : "count" }, count === null ? "–" : grouped(count));

function showList(runs) {
  // An unchanged list is not rebuilt, so that the pointer and the focus stay.
  const now = JSON.stringify([presentRun, runs]);
  if (now === shown) return;
  shown = now;
  const lines = runs.map((run) => {
    const button = element("button", { "aria-label": `Account of run ${run.run}` }, String(run.run));
    button.disabled = !run.has_account;
    button.addEventListener("click", () => showAccount(run.run).catch(() => {}));
    const cells = [button, statusOf(run), begun(run)].map((what) => element("td", {}, what));
    const counts = [countCell(run.written), countCell(run.incomplete, "bad"), countCell(run.lost, "bad")];
    return element("tr", { title: run.directory }, ...cells, ...counts, noteCell(run.notes));
  });
  replaceKept(byId("runs").tBodies[0], lines);
}

async function showAccount(run) {
  const box = byId("run-account");
  const [answer, said] = await Promise.all([fetch(`/api/v1/runs/${run}`), fetch(`/api/v1/runs/${run}/notes`)]);
  const account = await answer.json();
  const notes = said.ok ? (await said.json()).filter((note) => note.kind === "note") : [];
  byId("note-run").value = run;
  if (!answer.ok) {
    box.replaceChildren(element("p", {}, account.error));
    return;
  }
  const { fragments, events, ledger, rate } = account;
  const lines = [
    ["end", words(text(account.state))],
    ["duration", span(account.duration_s)],
    ["events built", grouped(events.built)],
    ["events written", grouped(events.written)],
    ["events / s", grouped(rate.events_per_s)],
    ["written", bytes(account.bytes.written)],
    ["fragments received", grouped(fragments.received)],
    ["ledger", ledger.balanced ? "balanced" : "not balanced"],
    ["files", account.directory],
    ...Object.entries(account.fields ?? {}),
    ...(account.remarks ?? []).map((remark) => ["remark", remark]),
    ...notes.map((note) => ["note", dated(note)]),
  ];
  const list = element("dl", {}, ...lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const whole = element("details", {}, element("summary", {}, "whole account (JSON)"), element("pre", { tabindex: "0" }, JSON.stringify(account, null, 2)));
  const close = element("button", {}, "Close");
  close.addEventListener("click", () => box.replaceChildren());
  box.replaceChildren(element("h3", {}, `Run ${run}`), list, whole, close);
}

async function read() {
  const answer = await fetch("/api/v1/runs?limit=100");
  if (answer.ok) showList(await answer.json());
}

// Notes go to the current run, unless another one was entered.
function follow(live) {
  const field = byId("note-run");
  if (live.run !== presentRun && (field.value === "" || field.value === String(presentRun))) field.value = live.run ?? "";
  presentRun = live.run;
  showHeld();
}

// Only an operator who may send commands can add notes.
export function showHeld() {
  byId("note-add").disabled = Boolean(whyNot());
  setText(byId("note-add"), whyNot() || "Add");
}

async function add() {
  const field = byId("note-text");
  const reply = await give(`runs/${byId("note-run").valueAsNumber}/notes`, {}, field.value.trim());
  // A refused note stays in the field.
  if (!reply) return;
  field.value = "";
  await read();
}

// The list changes when a run begins or ends, and with notes.
export function show(live) {
  follow(live);
  const now = `${live.run} ${live.state} ${live.last_entry}`;
  if (now === shownFor && (document.hidden || performance.now() - shownAt < EVERY_MILLISECONDS)) return;
  shownFor = now;
  shownAt = performance.now();
  read().catch(() => { shownFor = ""; });
}

export function begin() {
  heads(byId("runs"), ["run", "status", "start", "events written", "incomplete", "fragments lost", "notes"]);
  byId("note").addEventListener("submit", (event) => {
    event.preventDefault();
    add().catch(() => {});
  });
}
