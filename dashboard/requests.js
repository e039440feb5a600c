// What the page asks of the server that changes something, in whose name, and with which token.

import { ask, notice } from "./dialogs.js";
import { byId } from "./format.js";
import { recallSecret, rememberSecret } from "./memory.js";

// What a request can carry, as the server's file has it.
const TOKEN = "[ -~]{16,}";

// In whose name commands are given: as the server takes it.
export const name = () => byId("who").value.replace(/\p{Cc}/gu, "").trim();
const who = () => name() || "dashboard";

// Whether a name is that of whoever is in front of the page.
export const isOwn = (other) => other === who();

let asking = null;

// One question, however many requests wait for its answer.
function askToken(wrong) {
  asking ??= ask({
    title: "The token of this server's file",
    text: wrong ? "This was another one: the server does not take it." : "Commands need it here. The page keeps it until it is closed.",
    lines: [{ name: "token", label: "Token", type: "password", pattern: TOKEN, title: "one line of at least 16 ASCII characters", autocomplete: "off" }],
    agree: "Use it",
  }).finally(() => { asking = null; });
  return asking;
}

// Sends a request with the token, and asks for it where that is not the right one; undefined where nobody gives one.
async function send(path, options) {
  const token = recallSecret("token");
  const authorized = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...authorized } });
  if (answer.status !== 401) return answer;
  // Another request may have been given one meanwhile.
  if (recallSecret("token") === token) {
    const said = await askToken(Boolean(token));
    rememberSecret("token", said?.token.trim() ?? "");
    if (!said) return undefined;
  }
  return send(path, options);
}

// Does something, such as `commands/start`, and gives what is answered. Undefined where it was not done: `tell` has been told why then. A
// body that is a text goes as that, another one as JSON.
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
    tell("The server did not answer, so that it is not known whether this was done.");
  }
  return undefined;
}
