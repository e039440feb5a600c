// Notices and questions to the operator. The page goes on below them: alarms are seen and heard, which the browser's own dialogs would stop.

import { byId, element, setText } from "./format.js";

const LONGEST_NOTICE_MILLISECONDS = 8000;

let closing = 0;
let isOver = () => false;
let asked = Promise.resolve();

// A notice. It lies over the page, so that nothing jumps; one that `passes` closes by itself, and others as soon as `over` is true when
// `review` asks.
export function notice(text, { passes = false, over = () => false } = {}) {
  clearTimeout(closing);
  isOver = over;
  byId("notice").hidden = !text;
  byId("notice").className = passes ? "toast passes" : "toast";
  setText(byId("notice-text"), text || "");
  if (passes) closing = setTimeout(() => notice(""), LONGEST_NOTICE_MILLISECONDS);
}

// Closes a notice that is no longer true.
export function review() {
  if (!byId("notice").hidden && isOver()) notice("");
}

// Asks a question with a field for each of `lines`: { name, label, value, further attributes }. Returns the values by name, or undefined
// after Cancel. Enter alone does not agree to a `grave` question. Questions come one after the other.
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
  byId("question-agree").className = grave ? "danger" : "agree";
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
      // No input stays behind: it may be a token.
      byId("question-lines").replaceChildren();
      resolve(dialog.returnValue === "agree" ? said : undefined);
    }, { once: true });
  });
}

export function begin() {
  byId("notice-close").addEventListener("click", () => notice(""));
}
