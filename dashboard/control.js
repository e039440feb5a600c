// Run control: the state, the buttons that are allowed now, and whatever else changes something.

import { byId, setText } from "./format.js";

const LONGEST_NOTICE_MILLISECONDS = 8000;

let closing = 0;

// A word to the person in front of the page. It lies over the page, so that nothing jumps; one that `passes` goes by itself.
export function notice(text, { passes = false } = {}) {
  clearTimeout(closing);
  byId("notice").hidden = !text;
  setText(byId("notice-text"), text || "");
  if (passes) closing = setTimeout(() => notice(""), LONGEST_NOTICE_MILLISECONDS);
}

// In whose name commands are given.
const who = () => byId("who").value.trim() || "dashboard";

// Whether somebody else than whoever is in front of the page holds the controls.
export const isHeldByAnother = (live) => Boolean(live.operator) && live.operator.name !== who();

// Does something, such as `commands/start`; a body that is a text goes as that, another one as JSON. A server that wants its token is told it once for as long as the page is open.
export async function give(what, parameters = {}, body = undefined) {
  const isText = typeof body === "string";
  const headers = body ? { "Content-Type": isText ? "text/plain; charset=utf-8" : "application/json" } : {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const query = new URLSearchParams({ by: who() });
  for (const [name, values] of Object.entries(parameters)) {
    for (const value of [values].flat()) query.append(name, value);
  }
  const answer = await fetch(`/api/v1/${what}?${query}`, { method: "POST", headers, body: body && (isText ? body : JSON.stringify(body)) });
  if (answer.status === 401) {
    const given = window.prompt("The token of this server's file:");
    if (given) { sessionStorage.setItem("token", given); return give(what, parameters, body); }
    return undefined;
  }
  const reply = await answer.json();
  if (!answer.ok) notice(reply.text || reply.error);
  return reply;
}

let trouble = null;
let required = [];

// A dialog with a line for each field that a start needs, filled in with what was said the last time; the page remembers.
function askFields() {
  const dialog = byId("fields");
  const lines = byId("fields-lines");
  const last = JSON.parse(localStorage.getItem("fields") ?? "{}");
  lines.replaceChildren(...required.map((name) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { name, required: true, maxLength: 1024, value: last[name] ?? "" });
    label.append(`${name} `, input);
    return label;
  }));
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "start") return resolve(undefined);
      const said = Object.fromEntries([...lines.querySelectorAll("input")].map((input) => [input.name, input.value]));
      localStorage.setItem("fields", JSON.stringify({ ...last, ...said }));
      return resolve(Object.entries(said).map(([name, value]) => `${name}=${value}`));
    }, { once: true });
  });
}

// What goes with a command; nothing at all where whoever gave it thought better of it.
async function parametersOf(command) {
  if (command !== "start" || !required.length) return {};
  const field = await askFields();
  return field && { field };
}

async function press(button) {
  const parameters = await parametersOf(button.dataset.command);
  if (!parameters) return;
  button.disabled = true;
  await give(`commands/${button.dataset.command}`, parameters);
}

export function showState(live) {
  const state = byId("state");
  setText(state, live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state);
  state.className = `state ${live.state}`;
  setText(byId("run"), live.run ? `run ${live.run}` : "no run");
  byId("run").title = Object.entries(live.fields ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");
  document.title = `${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = !live.allowed.includes(button.dataset.command);
  }
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
  for (const button of document.querySelectorAll("[data-command]")) button.disabled = true;
  notice(text);
}

export function showBack() {
  document.body.classList.remove("stale");
  trouble = null;
  notice("Connected again.", { passes: true });
}

export function begin() {
  byId("notice-close").addEventListener("click", () => notice(""));
  const name = byId("who");
  name.value = localStorage.getItem("who") ?? "";
  name.addEventListener("change", () => localStorage.setItem("who", name.value.trim()));
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = true;
    button.addEventListener("click", () => press(button).catch((error) => notice(String(error))));
  }
}
