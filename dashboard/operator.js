// Which operator has control: shown, taken, released, handed over. While another operator has it, this page sends no commands and says why.

import { ask, notice, review } from "./dialogs.js";
import { byId, moment, setText } from "./format.js";
import { recall, remember } from "./memory.js";
import { give, isOwn, name } from "./requests.js";

// After a change made here, a view that was already under way shows the earlier holder. Such views are ignored for this long.
const LATE_MILLISECONDS = 5000;

let holder = null; // { name, since_ns }; null: control is free
let isKnown = false;
let isFirst = true;
let changed = null; // { since }: a change made here that no view shows yet
let onChange = () => {};

const isHeldHere = () => holder !== null && isOwn(holder.name);

export const isHeldByAnother = () => holder !== null && !isOwn(holder.name);

// Why this page may not send commands; empty if it may.
export const whyNot = () => (isHeldByAnother() ? `${holder.name} has control` : "");

function sentence() {
  if (!isKnown) return "It is not known who has control.";
  if (!holder) return "Control is free: all operators may send commands.";
  if (isHeldHere()) return `You have control since ${moment(holder.since_ns)}.`;
  return `${holder.name} has control since ${moment(holder.since_ns)}: other operators can only watch.`;
}

function render() {
  const line = byId("holder");
  setText(line, sentence());
  line.title = sentence();
  line.className = isHeldByAnother() ? "holder another" : isHeldHere() ? "holder own" : "holder";
  const isAnother = isHeldByAnother();
  const offer = (id, isOffered) => {
    byId(id).disabled = !isKnown || !isOffered;
    byId(id).hidden = !isOffered;
  };
  setText(byId("take"), isHeldHere() ? "Keep control" : "Take control");
  offer("take", !isAnother);
  offer("give-up", isHeldHere());
  offer("give-to", isHeldHere());
  offer("force", isAnother);
}

const isSame = (one, other) => one?.name === other?.name && one?.since_ns === other?.since_ns;

// Tells this operator of a change made elsewhere.
function tell(before, now) {
  if (before && isOwn(before.name)) {
    const over = () => isHeldHere() || (now ? holder?.name !== now.name : holder !== null);
    notice(now ? `${now.name} has control now. You can only watch.` : "You no longer have control: control is free.", { over });
  } else if (now && isOwn(now.name)) {
    notice("You were given control.", { passes: true });
  }
}

export function show(live) {
  const now = live.operator ?? null;
  if (changed && (isSame(now, holder) || performance.now() - changed.since > LATE_MILLISECONDS)) changed = null;
  if (changed) return;
  // A restarted server does not know the holder any more.
  if (!isFirst && holder?.name !== now?.name) tell(holder, now);
  holder = now;
  isKnown = true;
  isFirst = false;
  review();
  render();
}

export function showGone() {
  isKnown = false;
  render();
}

async function change(what, parameters, words) {
  const reply = await give(`operator/${what}`, parameters);
  if (!reply) return;
  holder = reply.operator;
  review();
  changed = { since: performance.now() };
  notice(words, { passes: true });
  render();
  onChange();
  // The button that was pressed may be hidden now: the keyboard focus goes to its neighbour.
  if (document.activeElement === document.body || document.activeElement.disabled) {
    ["take", "force"].map(byId).find((button) => !button.disabled)?.focus();
  }
}

// Other operators need a name to ask for control.
function isNamed() {
  if (name()) return true;
  notice("Enter your name first, so that other operators know who has control.", { passes: true });
  byId("who").focus();
  return false;
}

async function take() {
  if (isNamed()) await change("take", {}, isHeldHere() ? "You keep control." : "You have control: other operators can only watch.");
}

async function force() {
  if (!isNamed()) return;
  const from = holder.name;
  const said = await ask({
    title: `Take control from ${from}?`,
    text: `${from} is not asked and can only watch afterwards. The journal records that you did it.`,
    agree: "Take by force",
    grave: true,
  });
  if (said) await change("take", { force: true }, `You have control: ${from} can only watch.`);
}

async function giveTo() {
  const said = await ask({
    title: "Hand over control",
    lines: [{ name: "to", label: "To which operator? Use the name on that operator's page.", maxlength: "64", pattern: ".*\\S.*", title: "a name", autocomplete: "off" }],
    agree: "Hand over",
  });
  if (said) await change("give", { to: said.to.trim() }, `${said.to.trim()} has control now.`);
}

// `again` is called after each change of what this page may do.
export function begin(again) {
  onChange = again;
  const field = byId("who");
  field.value = recall("who") ?? "";
  field.addEventListener("input", () => {
    remember("who", name());
    review();
    render();
    onChange();
  });
  const actions = { take, force, "give-to": giveTo, "give-up": () => change("give", {}, "Control is free now: all operators may send commands.") };
  for (const [id, act] of Object.entries(actions)) {
    byId(id).addEventListener("click", () => act().catch((error) => notice(String(error))));
  }
  // On narrow pages the panel opens on demand.
  const toggle = byId("operator-toggle");
  toggle.addEventListener("click", () => toggle.setAttribute("aria-expanded", String(toggle.getAttribute("aria-expanded") !== "true")));
  render();
}
