// Throughput and alarms: shown, heard, acknowledged, shelved.

import { notice } from "./dialogs.js";
import { byId, element, manual, replaceKept, say, setText, words } from "./format.js";
import { currentProblems } from "./quality.js";
import { give } from "./requests.js";

const SHELF_SECONDS = 3600;
// How often an alarm sounds until it is acknowledged, and its tones in hertz.
const SOUNDS = {
  critical: { everyMilliseconds: 2000, tones: [880, 660, 880] },
  warning: { everyMilliseconds: 10000, tones: [520] },
};

let audio = null;
let isLoud = false;
let heardAt = 0;

function status({ state, known_by: by }) {
  if (state === "acknowledged") return by ? `, acknowledged by ${by}` : ", acknowledged";
  return state === "latched" ? ", over, not acknowledged" : "";
}

// The run is named if it is not the present one.
const title = (alarm, run) => `${alarm.severity}: ${words(alarm.name)}${alarm.run && alarm.run !== run ? ` in run ${alarm.run}` : ""}${status(alarm)}`;

function line(alarm, run) {
  const item = element("li", { class: `${alarm.severity} ${alarm.state}` }, element("b", {}, title(alarm, run)), element("span", { class: "what" }));
  const ask = (what, parameters) => give(`alarms/${alarm.name}/${what}`, parameters).catch((error) => notice(String(error)));
  const button = (text, label, what, parameters) => {
    const made = element("button", { "aria-label": `${label}: ${words(alarm.name)}`, "data-place": alarm.name }, text);
    made.addEventListener("click", () => ask(what, parameters));
    return made;
  };
  const deeds = element("span", { class: "choice" });
  if (alarm.state !== "acknowledged") deeds.append(button("Acknowledge", "Acknowledge", "acknowledge"));
  deeds.append(button("Shelve 1 h", "Shelve 1 h", "shelve", { seconds: SHELF_SECONDS }));
  // The manual has no section for rules of a configuration.
  if (alarm.is_built_in) deeds.append(element("a", manual(alarm.name), "What to do"));
  item.append(deeds);
  return item;
}

// Shelved alarms, in one line with a button for each that shows it again.
function showShelved(shelved) {
  const box = byId("shelved");
  const shown = JSON.stringify(shelved.map(({ name, shelved_by: by }) => [name, by]));
  box.hidden = shelved.length === 0;
  if (box.dataset.shown === shown) return;
  box.dataset.shown = shown;
  const buttons = shelved.map(({ name, shelved_by: by }) => {
    const made = element("button", { "aria-label": `Show again: ${words(name)}`, "data-place": name, title: by ? `shelved by ${by}` : "" }, `Show ${words(name)}`);
    made.addEventListener("click", () => give(`alarms/${name}/shelve`, { seconds: 0 }).catch((error) => notice(String(error))));
    return made;
  });
  replaceKept(box, [element("span", {}, `${shelved.length} shelved`), ...buttons]);
}

function showAlarms({ alarms, shelved, run }) {
  showShelved(shelved ?? []);
  const box = byId("alarms");
  const shown = JSON.stringify(alarms.map((alarm) => [alarm.name, title(alarm, run)]));
  // Rebuilt only after a change, so that a button stays where it is pressed.
  if (box.dataset.shown !== shown) {
    box.dataset.shown = shown;
    const lines = alarms.map((alarm) => line(alarm, run));
    replaceKept(box, lines.length ? lines : [element("li", { class: "none" }, "No alarms.")]);
  }
  alarms.forEach((alarm, index) => setText(box.children[index].children[1], alarm.sentence));
  say("alarms-said", alarms.map((alarm) => `${title(alarm, run)}. ${alarm.sentence}`).join(" "));
}

// What limits the run. A silent source is a problem of the data too, and its sentence is there.
function limitOf({ limit, quality, state }) {
  if (!limit) return state === "running" ? "Waiting for the first report." : "No run is going on.";
  const isSaid = limit.kind === "source_silent" && [...currentProblems({ quality }).values()].includes(limit.kind);
  return isSaid ? `${limit.sentence.split(":")[0]} sends nothing, see Data quality` : limit.sentence;
}

export function show(live) {
  const limit = limitOf(live);
  setText(byId("limit"), limit);
  say("limit-said", `Throughput: ${limit}`);
  showAlarms(live);
  const unanswered = live.alarms.filter((alarm) => alarm.state === "active" || alarm.state === "latched");
  const worst = ["critical", "warning"].find((severity) => unanswered.some((alarm) => alarm.severity === severity));
  document.body.dataset.alarm = worst ?? "none";
  sound(worst);
}

function sound(severity) {
  const { everyMilliseconds, tones } = SOUNDS[severity] ?? {};
  if (!isLoud || !tones || performance.now() - heardAt < everyMilliseconds) return;
  heardAt = performance.now();
  play(tones);
}

function play(tones) {
  if (!audio || audio.state !== "running") return;
  tones.forEach((hertz, index) => {
    const from = audio.currentTime + index * 0.22;
    const tone = audio.createOscillator();
    const loudness = audio.createGain();
    tone.frequency.value = hertz;
    // Ramps avoid clicks.
    loudness.gain.setValueAtTime(0, from);
    loudness.gain.linearRampToValueAtTime(0.25, from + 0.02);
    loudness.gain.linearRampToValueAtTime(0, from + 0.2);
    tone.connect(loudness).connect(audio.destination);
    tone.start(from);
    tone.stop(from + 0.21);
  });
  document.body.dataset.sounded = String(Number(document.body.dataset.sounded ?? 0) + 1);
}

function setLoud(loud) {
  isLoud = loud;
  setText(byId("sound"), loud ? "Turn sound off" : "Turn sound on");
}

// Browsers play no sound before a click: the button that turns sound on is that click, and plays a tone at once.
export function begin() {
  byId("sound").addEventListener("click", async () => {
    setLoud(!isLoud);
    if (!isLoud) return;
    audio ??= new AudioContext();
    await audio.resume();
    heardAt = performance.now();
    play([660]);
  });
}
