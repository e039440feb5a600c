// The journal: what happened, and which operator did it.

import { byId, clock, element } from "./format.js";

const MOST_ENTRIES = 200;

let last = 0;
// One request at a time, or entries would appear twice.
let asks = false;
let isOld = false;

export function show(live) {
  if (asks || (live.last_entry === last && !isOld)) return;
  asks = true;
  // A restarted server counts from one again.
  isOld ||= live.last_entry < last;
  read().catch(() => {}).finally(() => { asks = false; });
}

// Another server may answer now, with as many entries of its own: all entries are read again.
export function again() {
  isOld = true;
}

async function read() {
  const wasOld = isOld;
  const answer = await fetch(`/api/v1/journal?after=${wasOld ? 0 : last}`);
  const entries = await answer.json();
  const list = byId("journal");
  if (wasOld) {
    isOld = false;
    last = 0;
    list.replaceChildren();
  }
  for (const entry of entries) {
    last = Math.max(last, entry.number);
    const text = `${entry.run ? `run ${entry.run}: ` : ""}${entry.text}`;
    // The end of an alarm is an incident for the history, and good news for the operator.
    const kind = /^alarm \S+ is over$/.test(entry.text) ? "state" : entry.kind;
    list.prepend(element("li", { class: `kind-${kind}` }, element("time", {}, clock(entry.at_ns)), text));
  }
  while (list.children.length > MOST_ENTRIES) list.lastChild.remove();
}
