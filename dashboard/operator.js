// Who holds the controls: shown, taken, given. While somebody else does, nothing can be done here, and it is said why.

import { ask, notice } from "./dialogs.js";
import { byId, moment, setText } from "./format.js";
import { recall, remember } from "./memory.js";
import { give, isOwn, name } from "./requests.js";

// A view that was on its way when the controls were changed from here says what was before: it is not believed for so long.
const LATE_MILLISECONDS = 5000;

let holder = null; // { name, since_ns }, or nobody
let isKnown = false;
let isFirst = true;
let changed = null; // { since }: what was done here is not seen in the views yet
let onChange = () => {};

const isHeldHere = () => holder !== null && isOwn(holder.name);

// Whether somebody else than whoever is in front of the page holds the controls.
export const isHeldByAnother = () => holder !== null && !isOwn(holder.name);

// Why nothing can be done here; empty where it can.
export const whyNot = () => (isHeldByAnother() ? `${holder.name} holds the controls` : "");

function sentence() {
  if (!isKnown) return "It is not known who holds the controls.";
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

// What somebody else did, to whom it matters.
function tell(before, now) {
  if (before && isOwn(before.name)) {
    notice(now ? `${now.name} has the controls now: you are not heard any more.` : "You no longer hold the controls: control is free.");
  } else if (now && isOwn(now.name)) {
    notice("You were given the controls.", { passes: true });
  }
}

export function show(live) {
  const now = live.operator ?? null;
  if (changed && (isSame(now, holder) || performance.now() - changed.since > LATE_MILLISECONDS)) changed = null;
  if (changed) return;
  // A server that was started anew has forgotten who held them.
  if (!isFirst && holder?.name !== now?.name) tell(holder, now);
  holder = now;
  isKnown = true;
  isFirst = false;
  render();
}

// Nobody answers: whoever held the controls may hold them no longer.
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
  // The button that was pressed may be of no use any more: who goes on with the keyboard does so beside it.
  if (document.activeElement === document.body || document.activeElement.disabled) {
    ["take", "force"].map(byId).find((button) => !button.disabled)?.focus();
  }
}

// Whoever holds the controls has a name, or others would not know whom to ask.
function isNamed() {
  if (name()) return true;
  notice("Write your name first, so that others know who holds the controls.", { passes: true });
  byId("who").focus();
  return false;
}

async function take() {
  if (isNamed()) await change("take", {}, isHeldHere() ? "You go on holding the controls." : "You hold the controls: commands of other operators are refused.");
}

async function force() {
  if (!isNamed()) return;
  const from = holder.name;
  const said = await ask({
    title: `Take the controls from ${from}?`,
    text: `${from} is not asked, and not heard any more. The journal says that you did it.`,
    agree: "Take by force",
    grave: true,
  });
  if (said) await change("take", { force: true }, `You hold the controls: ${from} is not heard any more.`);
}

async function giveTo() {
  const said = await ask({
    title: "Give the controls to somebody",
    lines: [{ name: "to", label: "To whom, by the name that they have on their page", maxlength: "64", pattern: ".*\\S.*", title: "a name", autocomplete: "off" }],
    agree: "Give",
  });
  if (said) await change("give", { to: said.to.trim() }, `${said.to.trim()} holds the controls now.`);
}

// `again` is called where something else may be done now than before.
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
