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

// The fields of the previous run.
function lastSaid() {
  try {
    return JSON.parse(recall("fields")) ?? {};
  } catch {
    return {};
  }
}

// Asks for each required field of a start, with the previous answers as defaults.
async function askFields() {
  const last = lastSaid();
  const said = await ask({
    title: "Describe the run",
    lines: required.map((name) => ({ name, label: name, value: last[name] ?? "" })),
    agree: "Start",
  });
  if (!said) return undefined;
  remember("fields", JSON.stringify({ ...last, ...said }));
  return { field: Object.entries(said).map(([name, value]) => `${name}=${value}`) };
}

async function press(button) {
  const command = button.dataset.command;
  // Nothing happens if the user cancels.
  const parameters = command === "start" && required.length ? await askFields() : {};
  if (!parameters) return;
  button.disabled = true;
  await give(`commands/${command}`, parameters);
  showAllowed();
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
  const state = byId("state");
  setText(state, live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state);
  state.className = `state ${live.state}`;
  setText(byId("run"), live.run ? `run ${live.run}` : "no run");
  byId("run").title = Object.entries(live.fields ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");
  document.title = `${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  allowed = live.allowed;
  showAllowed();
  required = live.required_fields ?? [];
  // A message that the user closed is not shown again until it changes.
  if (live.trouble !== trouble) {
    trouble = live.trouble;
    notice(trouble);
  }
}

// The server does not answer: commands are disabled, and the page shows old values.
export function showGone(text) {
  setText(byId("state"), "no answer");
  byId("state").className = "state gone";
  document.title = "no answer · Ropewalk";
  document.body.classList.add("stale");
  allowed = [];
  showAllowed();
  // Only once, so that later messages stay visible.
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
