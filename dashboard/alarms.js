// The limit of the run, and the alarms: shown, played, acknowledged, shelved.

import { notice } from "./dialogs.js";
import { byId, element, replaceKept, setText, words } from "./format.js";
import { give } from "./requests.js";

const SHELF_SECONDS = 3600;
// How often an unacknowledged alarm sounds, and its tones in hertz.
const SOUNDS = {
  critical: { everyMilliseconds: 2000, tones: [880, 660, 880] },
  warning: { everyMilliseconds: 10000, tones: [520] },
};

let audio = null;
let isLoud = false;
let unanswered = [];
let limitSaid = "";
let heardAt = 0;

function told(alarm) {
  const known = alarm.known_by ? `is known to ${alarm.known_by}` : "is known";
  const standing = alarm.state === "latched" ? "is over, and was not acknowledged" : alarm.state === "acknowledged" ? known : "";
  return `${alarm.severity}: ${words(alarm.name)} ${standing}`.trim();
}

function line(alarm) {
  const item = element("li", { class: alarm.severity }, element("span", {}, told(alarm)));
  const ask = (what, parameters) => give(`alarms/${alarm.name}/${what}`, parameters).catch((error) => notice(String(error)));
  const button = (text, label, what, parameters) => {
    const made = element("button", { "aria-label": `${label} ${words(alarm.name)}`, "data-place": alarm.name }, text);
    made.addEventListener("click", () => ask(what, parameters));
    return made;
  };
  if (alarm.state !== "acknowledged") item.append(button("Acknowledge", "acknowledge", "acknowledge"));
  item.append(button("Shelve 1 h", "for an hour, do not show", "shelve", { seconds: SHELF_SECONDS }));
  return item;
}

export function show(live) {
  const limit = live.limit?.sentence ?? (live.state === "running" ? "No data yet." : "No run is active.");
  setText(byId("limit"), limit);
  // Screen readers do not announce changes of the numbers alone.
  const words = limit.replace(/\b\d[\d.,]*\b/g, "");
  if (words !== limitSaid) setText(byId("limit-said"), limit);
  limitSaid = words;
  byId("limit").className = `limit ${live.limit ? live.limit.kind : ""}`;
  unanswered = live.alarms.filter((alarm) => alarm.state === "active" || alarm.state === "latched");
  const box = byId("alarms");
  const shown = JSON.stringify(live.alarms.map((alarm) => [alarm.name, alarm.severity, alarm.state]));
  // Rebuilt only after a change, so that buttons do not move under the pointer.
  if (box.dataset.shown !== shown) {
    box.dataset.shown = shown;
    const lines = live.alarms.map(line);
    replaceKept(box, lines.length ? lines : [element("li", { class: "none" }, "no alarm")]);
  }
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
    // A soft end avoids a click.
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
  const button = byId("sound");
  setText(button, loud ? "Sound is on" : "Sound is off");
  button.setAttribute("aria-pressed", String(loud));
}

// Browsers play no sound before the first click: the button that turns sound on is that click, and plays at once.
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
