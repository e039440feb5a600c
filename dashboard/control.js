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

// Does something, such as `commands/start`. A server that wants its token is told it once for as long as the page is open.
export async function give(what, parameters = {}) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const query = new URLSearchParams({ by: who(), ...parameters });
  const answer = await fetch(`/api/v1/${what}?${query}`, { method: "POST", headers });
  if (answer.status === 401) {
    const given = window.prompt("The token of this server's file:");
    if (given) { sessionStorage.setItem("token", given); return give(what, parameters); }
    return undefined;
  }
  const reply = await answer.json();
  if (!answer.ok) notice(reply.text || reply.error);
  return reply;
}

let trouble = null;

export function showState(live) {
  const state = byId("state");
  setText(state, live.task && live.state !== "running" ? `${live.state} (${live.task})` : live.state);
  state.className = `state ${live.state}`;
  setText(byId("run"), live.run ? `run ${live.run}` : "no run");
  document.title = `${live.state}${live.run ? ` · run ${live.run}` : ""} · Ropewalk`;
  for (const button of document.querySelectorAll("[data-command]")) {
    button.disabled = !live.allowed.includes(button.dataset.command);
  }
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
    button.addEventListener("click", () => {
      button.disabled = true;
      give(`commands/${button.dataset.command}`).catch((error) => notice(String(error)));
    });
  }
}
