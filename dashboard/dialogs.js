// Messages and questions to the user. The page continues to update below, with alarms and their sound, which the browser's own dialogs
// would stop.

import { byId, element, setText } from "./format.js";

const LONGEST_NOTICE_MILLISECONDS = 8000;

let closing = 0;
let asked = Promise.resolve();

// Shows a message. It overlays the page, so that nothing moves; a message that `passes` disappears by itself.
export function notice(text, { passes = false } = {}) {
  clearTimeout(closing);
  byId("notice").hidden = !text;
  byId("notice").className = passes ? "toast passes" : "toast";
  setText(byId("notice-text"), text || "");
  if (passes) closing = setTimeout(() => notice(""), LONGEST_NOTICE_MILLISECONDS);
}

// Asks a question with a line for each of `lines`, { name, label, value, and further attributes of the field }. Returns the answers by name, or
// undefined if the user cancels. Enter does not confirm a `grave` question. Questions are shown one after the other.
export function ask(question) {
  asked = asked.catch(() => {}).then(() => put(question));
  return asked;
}

function put({ title, text = "", lines = [], agree, grave = false }) {
  const dialog = byId("question");
  setText(byId("question-title"), title);
  setText(byId("question-text"), text);
  byId("question-text").hidden = !text;
  setText(byId("question-agree"), agree);
  const fields = lines.map(({ label, ...attributes }) => {
    const field = element("input", { maxlength: "1024", required: "", ...attributes });
    byId("question-lines").append(element("label", {}, `${label} `, field));
    return field;
  });
  dialog.returnValue = "";
  dialog.showModal();
  if (grave) byId("question-cancel").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const said = Object.fromEntries(fields.map((field) => [field.name, field.value]));
      // Clear the fields: one may contain a token.
      byId("question-lines").replaceChildren();
      resolve(dialog.returnValue === "agree" ? said : undefined);
    }, { once: true });
  });
}

export function begin() {
  byId("notice-close").addEventListener("click", () => notice(""));
}
