// Run control: the state, and the buttons that are allowed now.

import { ask, notice } from "./dialogs.js";
import { byId, setText } from "./format.js";
import { recall, remember } from "./memory.js";
import { whyNot } from "./operator.js";
import { give } from "./requests.js";

let trouble = null;
let required = [];
let allowed = [];
let gone = "";

// What was said of a run the last time.
function lastSaid() {
  try {
    return JSON.parse(recall("fields")) ?? {};
  } catch {
    return {};
  }
}

// A line for each field that a start needs, filled in with what was said the last time; the page remembers.
async function askFields() {
  const last = lastSaid();
  const said = await ask({
    title: "What is said of the run",
    lines: required.map((name) => ({ name, label: name, value: last[name] ?? "" })),
    agree: "Start",
  });
  if (!said) return undefined;
  remember("fields", JSON.stringify({ ...last, ...said }));
  return { field: Object.entries(said).map(([name, value]) => `${name}=${value}`) };
}

async function press(button) {
  const command = button.dataset.command;
  // Nothing is done where somebody thought better of it.
  const parameters = command === "start" && required.length ? await askFields() : {};
  if (!parameters) return;
  button.disabled = true;
  await give(`commands/${command}`, parameters);
  showAllowed();
}

// What can be done now: what the state allows, where nobody else holds the controls.
export function showAllowed() {
  const why = whyNot();
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = Boolean(why) || !allowed.includes(button.dataset.command);
    button.title = why;
  }
}

export function showState(live) {
  const state = byId("state");
  setText(state, live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state);
  state.className = `state ${live.state}`;
  setText(byId("run"), live.run ? `run ${live.run}` : "no run");
  byId("run").title = Object.entries(live.fields ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");
  document.title = `${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  allowed = live.allowed;
  showAllowed();
  required = live.required_fields ?? [];
  // What was closed by hand is not shown again until it is something else.
  if (live.trouble !== trouble) {
    trouble = live.trouble;
    notice(trouble);
  }
}

// Nobody answers: nothing can be done, and what stands on the page is old.
export function showGone(text) {
  setText(byId("state"), "no answer");
  byId("state").className = "state gone";
  document.title = "no answer · Ropewalk";
  document.body.classList.add("stale");
  allowed = [];
  showAllowed();
  // Once: what else there is to say then stays.
  if (text !== gone) notice(text);
  gone = text;
}

export function showBack() {
  document.body.classList.remove("stale");
  trouble = null;
  gone = "";
  notice("Connected again.", { passes: true });
}

export function begin() {
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = true;
    button.addEventListener("click", () => press(button).catch((error) => notice(String(error))));
  }
}
