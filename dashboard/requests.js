// Requests that change something on the server, with the operator's name and the token.

import { ask, notice } from "./dialogs.js";
import { byId } from "./format.js";
import { recallSecret, rememberSecret } from "./memory.js";

// A token as the server's file may have it and a header can carry it.
const TOKEN = "[ -~]{16,}";

// The operator's name, as the server accepts it.
export const name = () => byId("who").value.replace(/\p{Cc}/gu, "").trim();
const who = () => name() || "dashboard";

// Whether a name is this operator's.
export const isOwn = (other) => other === who();

let asking = null;

// Asks once, even if several requests wait for the token.
function askToken(wrong) {
  asking ??= ask({
    title: "A token is needed",
    text: wrong ? "The server refused this token." : "Commands to this server need a token. The page keeps it until you close it.",
    lines: [{ name: "token", label: "Token", type: "password", pattern: TOKEN, title: "one line of at least 16 ASCII characters", autocomplete: "off" }],
    agree: "Send",
  }).finally(() => { asking = null; });
  return asking;
}

// Sends a request with the token, and asks for the token until the server accepts it; undefined after Cancel.
async function send(path, options) {
  const token = recallSecret("token");
  const authorized = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers: { ...options.headers, ...authorized } });
  if (answer.status !== 401) return answer;
  // Another request may have got the token meanwhile.
  if (recallSecret("token") === token) {
    const said = await askToken(Boolean(token));
    rememberSecret("token", said?.token.trim() ?? "");
    if (!said) return undefined;
  }
  return send(path, options);
}

// Sends a request that changes something, such as `commands/start`, and returns the reply. Undefined if it was not done; `tell` gets the
// reason. A text body is sent as text, any other as JSON.
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
    tell("The server did not answer. It is not known whether this was done.");
  }
  return undefined;
}
