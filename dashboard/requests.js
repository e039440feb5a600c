// Requests that change something, with the user's name and the token.

import { ask, notice } from "./dialogs.js";
import { byId } from "./format.js";
import { recallSecret, rememberSecret } from "./memory.js";

// The characters of a token that a request can carry.
const TOKEN = "[ -~]{16,}";

// The name for commands, in the form that the server accepts.
export const name = () => byId("who").value.replace(/\p{Cc}/gu, "").trim();
const who = () => name() || "dashboard";

// Whether a name is that of the user of this page.
export const isOwn = (other) => other === who();

let asking = null;

// One question for all requests that wait for the token.
function askToken(wrong) {
  asking ??= ask({
    title: "Token of this server",
    text: wrong ? "The server refused this token." : "Commands need the token of the server's file. The page keeps it until you close it.",
    lines: [{ name: "token", label: "Token", type: "password", pattern: TOKEN, title: "one line of at least 16 ASCII characters", autocomplete: "off" }],
    agree: "Use it",
  }).finally(() => { asking = null; });
  return asking;
}

// Sends a request with the token, and asks for the token if it is wrong; undefined if the user cancels.
async function send(path, options) {
  const token = recallSecret("token");
  const authorized = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...authorized } });
  if (answer.status !== 401) return answer;
  // Another request may have received one meanwhile.
  if (recallSecret("token") === token) {
    const said = await askToken(Boolean(token));
    rememberSecret("token", said?.token.trim() ?? "");
    if (!said) return undefined;
  }
  return send(path, options);
}

// Sends a command, such as `commands/start`, and returns the answer. Returns undefined if it failed; `tell` then gets the reason. A text
// body is sent as text, any other one as JSON.
export async function give(what, parameters = {}, body = undefined, { method = "POST", tell = notice } = {}) {
  const isText = typeof body === "string";
  const headers = body ? { "Content-Type": isText ? "text/plain; charset=utf-8" : "application/json" } : {};
  const query = new URLSearchParams({ by: who() });
  for (const [key, values] of Object.entries(parameters)) {
    for (const value of [values].flat()) query.append(key, value);
  }
  try {
    const answer = await send(`/api/v1/${what}?${query}`, { method, headers, body: body && (isText ? body : JSON.stringify(body)) });
    if (!answer) return undefined;
    const reply = await answer.json();
    if (answer.ok) return reply;
    tell(reply.text || reply.error);
  } catch {
    tell("The server did not answer: it is unknown whether the command was carried out.");
  }
  return undefined;
}
