// What happened, and who did it.

import { byId, clock, element } from "./format.js";

const MOST_ENTRIES = 200;

let last = 0;
// One question at a time, or entries would come twice.
let asks = false;

export function show(live) {
  // A server that was started anew counts anew.
  if (live.last_entry < last) {
    last = 0;
    byId("journal").replaceChildren();
  }
  if (live.last_entry > last && !asks) {
    asks = true;
    read().catch(() => {}).finally(() => { asks = false; });
  }
}

async function read() {
  const answer = await fetch(`/api/v1/journal?after=${last}`);
  const list = byId("journal");
  for (const entry of await answer.json()) {
    last = Math.max(last, entry.number);
    const text = `${entry.run ? `run ${entry.run}: ` : ""}${entry.text}`;
    list.prepend(element("li", { class: `kind-${entry.kind}` }, element("time", {}, clock(entry.at_ns)), text));
  }
  while (list.children.length > MOST_ENTRIES) list.lastChild.remove();
}
