// Control of the run: shows the operator who has it, takes it and gives it. While another operator has control, commands are disabled
// here, with the reason.

import { ask, notice } from "./dialogs.js";
import { byId, moment, setText } from "./format.js";
import { recall, remember } from "./memory.js";
import { give, isOwn, name } from "./requests.js";

// A view sent before a change from this page still shows the old state: it is ignored for this time.
const LATE_MILLISECONDS = 5000;

let holder = null; // { name, since_ns }, or null if control is free
let isKnown = false;
let isFirst = true;
let changed = null; // { since }: a change from this page that the views do not show yet
let onChange = () => {};

const isHeldHere = () => holder !== null && isOwn(holder.name);

// Whether an operator other than the user of this page has control.
export const isHeldByAnother = () => holder !== null && !isOwn(holder.name);

// Why commands are disabled here; empty if they are not.
export const whyNot = () => (isHeldByAnother() ? `${holder.name} holds the controls` : "");

function sentence() {
  if (!isKnown) return "It is unknown who holds the controls.";
  if (!holder) return "Control is free: all operators may send commands.";
  if (isHeldHere()) return `You hold the controls since ${moment(holder.since_ns)}.`;
  return `${holder.name} holds the controls since ${moment(holder.since_ns)}: commands of other operators are refused.`;
}

function render() {
  const line = byId("holder");
  setText(line, sentence());
  line.title = sentence();
  line.className = isHeldByAnother() ? "holder another" : isHeldHere() ? "holder own" : "holder";
  const isAnother = isHeldByAnother();
  byId("take").disabled = !isKnown || isAnother;
  setText(byId("take"), isHeldHere() ? "Still here" : "Take");
  byId("take").setAttribute("aria-label", isHeldHere() ? "Still here: keep the controls" : "Take the controls");
  for (const id of ["give-up", "give-to"]) byId(id).disabled = !isKnown || !isHeldHere();
  byId("force").disabled = !isKnown || !isAnother;
}

const isSame = (one, other) => one?.name === other?.name && one?.since_ns === other?.since_ns;

// Reports a change by another operator that affects this user.
function tell(before, now) {
  if (before && isOwn(before.name)) {
    notice(now ? `${now.name} has the controls now: your commands are refused from now on.` : "You no longer hold the controls: control is free.");
  } else if (now && isOwn(now.name)) {
    notice("You now hold the controls: another operator gave them to you.", { passes: true });
  }
}

export function show(live) {
  const now = live.operator ?? null;
  if (changed && (isSame(now, holder) || performance.now() - changed.since > LATE_MILLISECONDS)) changed = null;
  if (changed) return;
  // A restarted server does not know who had control.
  if (!isFirst && holder?.name !== now?.name) tell(holder, now);
  holder = now;
  isKnown = true;
  isFirst = false;
  render();
}

// The server does not answer: control may have changed.
export function showGone() {
  isKnown = false;
  render();
}

async function change(what, parameters, words) {
  const reply = await give(`operator/${what}`, parameters);
  if (!reply) return;
  holder = reply.operator;
  changed = { since: performance.now() };
  notice(words, { passes: true });
  render();
  onChange();
  // The pressed button may be disabled now: move the keyboard focus to the button beside it.
  if (document.activeElement === document.body || document.activeElement.disabled) {
    ["take", "force"].map(byId).find((button) => !button.disabled)?.focus();
  }
}

// The operator needs a name, so that others know whom to ask.
function isNamed() {
  if (name()) return true;
  notice("Write your name first, so that others know who holds the controls.", { passes: true });
  byId("who").focus();
  return false;
}

async function take() {
  if (isNamed()) await change("take", {}, isHeldHere() ? "You still hold the controls." : "You hold the controls: commands of other operators are refused.");
}

async function force() {
  if (!isNamed()) return;
  const from = holder.name;
  const said = await ask({
    title: `Take the controls from ${from}?`,
    text: `Commands of ${from} are refused from now on, without asking ${from}. The journal records your name.`,
    agree: "Take by force",
    grave: true,
  });
  if (said) await change("take", { force: true }, `You hold the controls: commands of ${from} are refused.`);
}

async function giveTo() {
  const said = await ask({
    title: "Give the controls to another operator",
    lines: [{ name: "to", label: "Name of the operator, as on their page", maxlength: "64", pattern: ".*\\S.*", title: "a name", autocomplete: "off" }],
    agree: "Give",
  });
  if (said) await change("give", { to: said.to.trim() }, `${said.to.trim()} holds the controls now.`);
}

// `again` is called when the allowed commands may have changed.
export function begin(again) {
  onChange = again;
  const field = byId("who");
  field.value = recall("who") ?? "";
  field.addEventListener("input", () => {
    remember("who", name());
    render();
    onChange();
  });
  const actions = { take, force, "give-to": giveTo, "give-up": () => change("give", {}, "Control is free now: all operators may send commands.") };
  for (const [id, act] of Object.entries(actions)) {
    byId(id).addEventListener("click", () => act().catch((error) => notice(String(error))));
  }
  render();
}
