// What went wrong: one line for each cause and subject, with a count.

import { byId, clock, fill, grouped, heads, setText, sourceLabel, words } from "./format.js";

const EVERY_MILLISECONDS = 2000;

// A source by its name.
const subject = (text) => {
  const id = /^source (\d+)$/.exec(text)?.[1];
  return id ? sourceLabel(Number(id)) : text;
};

function show({ found, incidents }) {
  setText(byId("incident-count"), `(${grouped(found)})`);
  fill(byId("incidents"), incidents.map((incident) => ({
    cells: [
      clock(incident.last_ns), grouped(incident.count), words(incident.cause), subject(incident.subject), incident.text, clock(incident.first_ns),
      incident.hex,
    ],
  })));
}

async function look() {
  if (document.hidden) return;
  const answer = await fetch(`/api/v1/incidents?${new URLSearchParams({ search: byId("incident-search").value })}`);
  if (answer.ok) show(await answer.json());
}

export function begin() {
  heads(byId("incidents"), ["last", "count", "cause", "where", "message", "first", "bytes"]);
  const again = () => look().catch(() => {});
  byId("incident-search").addEventListener("input", again);
  again();
  setInterval(again, EVERY_MILLISECONDS);
}
