// Run control: the state, and the buttons that are possible now.

import { ask, notice } from "./dialogs.js";
import { byId, grouped, setText } from "./format.js";
import { recall, remember } from "./memory.js";
import { whyNot } from "./operator.js";
import { give } from "./requests.js";

let last = null;
let required = [];
let allowed = [];
let gone = "";

// Run information of the last start.
function lastInformation() {
  try {
    return JSON.parse(recall("fields")) ?? {};
  } catch {
    return {};
  }
}

// Asks for the run information that a start needs, filled in as at the last start.
async function askInformation() {
  const before = lastInformation();
  const said = await ask({
    title: "Run information",
    lines: required.map((name) => ({ name, label: name, value: before[name] ?? "" })),
    agree: "Start",
  });
  if (!said) return undefined;
  remember("fields", JSON.stringify({ ...before, ...said }));
  return { field: Object.entries(said).map(([name, value]) => `${name}=${value}`) };
}

const counted = (count, noun) => `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

// What a reset loses.
function lost() {
  if (!["running", "paused", "draining"].includes(last?.state)) return "No run is going on: no data are lost. Press Configure afterwards.";
  const { events, fragments } = last.ledger;
  const inFlight = `${counted(events.in_flight, "event")} and ${counted(fragments.in_flight, "fragment")} in flight`;
  return `Run ${last.run} ends at once. What is not yet written is lost: now ${inFlight}. Events already written stay. To end the run without loss, press Cancel, then Stop.`;
}

async function askReset() {
  return (await ask({ title: "Reset?", text: lost(), agree: "Reset", grave: true })) && {};
}

async function press(button) {
  const command = button.dataset.command;
  const parameters = command === "reset" ? await askReset() : command === "start" && required.length ? await askInformation() : {};
  if (!parameters) return;
  button.disabled = true;
  await give(`commands/${command}`, parameters);
  showAllowed();
}

// The command of each pair that is shown: one place, one or the other.
function shownNow(state) {
  const first = state === "error" ? "reset" : state === "initial" ? "configure" : "start";
  return [first, state === "paused" ? "resume" : "pause", "stop"];
}

// Enables the commands that the state allows, unless another operator has control.
export function showAllowed() {
  const why = whyNot();
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = Boolean(why) || !allowed.includes(button.dataset.command);
    button.title = why;
  }
}

export function showState(live) {
  last = live;
  const state = byId("state");
  setText(state, live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state);
  state.className = `state ${live.state}`;
  document.body.dataset.state = live.state;
  setText(byId("run"), live.run ? `run ${live.run}` : "no run");
  byId("run").title = Object.entries(live.fields ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");
  const isBad = live.quality.is_current && ["incomplete", "doubtful"].includes(live.quality.state);
  document.title = `${isBad ? `${live.quality.state} data · ` : ""}${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  allowed = live.allowed;
  const shown = shownNow(live.state);
  for (const button of document.querySelectorAll(".slot [data-command]")) button.classList.toggle("off", !shown.includes(button.dataset.command));
  showAllowed();
  required = live.required_fields ?? [];
  // The operator who gave a command gets its refusal at once, as a notice; this line is for all.
  setText(byId("trouble"), live.trouble ? `Last error: ${live.trouble}` : "");
  byId("trouble").hidden = !live.trouble;
}

// The server does not answer: no command is possible, and all numbers are old.
export function showGone(text) {
  setText(byId("state"), "no answer");
  byId("state").className = "state gone";
  document.title = "no answer · Ropewalk";
  document.body.classList.add("stale");
  allowed = [];
  showAllowed();
  // Once: later notices stay.
  if (text !== gone) notice(text);
  gone = text;
}

export function showBack() {
  document.body.classList.remove("stale");
  gone = "";
  notice("Connected again.", { passes: true });
}

export function begin() {
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = true;
    button.addEventListener("click", () => press(button).catch((error) => notice(String(error))));
  }
  for (const button of document.querySelectorAll(".slot [data-command]")) button.classList.toggle("off", !shownNow("").includes(button.dataset.command));
}
