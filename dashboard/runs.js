// Runs of the output directory, and the account of one.

import { byId, bytes, element, grouped, heads, span, words } from "./format.js";

let shownFor = "";

// What a run is told by: a name, and what it is in the list of runs or in its account.
const text = (value) => (value === null || value === undefined ? "–" : String(value));

function showList(runs) {
  const lines = runs.map((run) => {
    const button = element("button", { "aria-label": `account of run ${run.run}` }, String(run.run));
    button.disabled = !run.has_account;
    button.addEventListener("click", () => showAccount(run.run).catch(() => {}));
    const directory = run.directory.split("/").at(-1);
    return element("tr", {}, element("td", {}, button), element("td", {}, run.has_account ? "ended" : "no account"), element("td", {}, directory));
  });
  byId("runs").tBodies[0].replaceChildren(...lines);
}

async function showAccount(run) {
  const box = byId("run-account");
  const answer = await fetch(`/api/v1/runs/${run}`);
  const account = await answer.json();
  if (!answer.ok) {
    box.replaceChildren(element("p", {}, account.error));
    return;
  }
  const { fragments, events, ledger, rate } = account;
  const lines = [
    ["how it ended", words(text(account.state))],
    ["time", span(account.duration_s)],
    ["events built", grouped(events.built)],
    ["events written", grouped(events.written)],
    ["events / s", grouped(rate.events_per_s)],
    ["written", bytes(account.bytes.written)],
    ["fragments received", grouped(fragments.received)],
    ["ledger", ledger.balanced ? "balanced" : "not balanced"],
    ["files", account.directory],
  ];
  const list = element("dl", {}, ...lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const whole = element("details", {}, element("summary", {}, "everything"), element("pre", { tabindex: "0" }, JSON.stringify(account, null, 2)));
  const close = element("button", {}, "Close");
  close.addEventListener("click", () => box.replaceChildren());
  box.replaceChildren(element("h3", {}, `Run ${run}`), list, whole, close);
}

async function read() {
  const answer = await fetch("/api/v1/runs?limit=100");
  if (answer.ok) showList(await answer.json());
}

// The list changes where a run begins or ends.
export function show(live) {
  const now = `${live.run} ${live.state} ${live.last_entry}`;
  if (now === shownFor) return;
  shownFor = now;
  read().catch(() => { shownFor = ""; });
}

export function begin() {
  heads(byId("runs"), ["run", "standing", "directory"]);
}
