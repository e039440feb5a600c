// What went wrong: the same cause of the same subject once, with a count.

import { byId, clock, fill, grouped, heads, setText, words } from "./format.js";

const EVERY_MILLISECONDS = 2000;

let asking = 0;

function show(incidents) {
  byId("incident-list").hidden = false;
  setText(byId("incident-count"), `(${grouped(incidents.length)})`);
  fill(byId("incidents"), incidents.map((incident) => ({
    cells: [
      clock(incident.last), grouped(incident.count), words(incident.cause), incident.subject, incident.text, clock(incident.first),
      incident.hex,
    ],
  })));
}

async function look() {
  if (document.hidden) return;
  const answer = await fetch(`/api/v1/incidents?${new URLSearchParams({ search: byId("incident-search").value })}`);
  // A server that keeps none is not asked again.
  if (answer.status === 404) clearInterval(asking);
  if (!answer.ok) return;
  const told = await answer.json();
  const incidents = told.incidents ?? told;
  show([...incidents].sort((one, other) => other.last - one.last));
}

export function begin() {
  heads(byId("incidents"), ["last", "count", "what", "where", "in words", "first", "bytes"]);
  const again = () => look().catch(() => {});
  byId("incident-search").addEventListener("input", again);
  again();
  asking = setInterval(again, EVERY_MILLISECONDS);
}
