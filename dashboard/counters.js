// The counters of the source that is selected. The server lists all counters with their help: a new one needs no change here.

import { byId, fill, grouped, heads, setText, sourceLabel, words } from "./format.js";

let listed = null; // all counters, as soon as the server has answered
let shown = null;

function list() {
  listed ??= fetch("/api/v1/counters").then((answer) => answer.json()).catch(() => {
    listed = null;
    return [];
  });
  return listed;
}

// Shows the counters of a source that are not 0; without a source, nothing.
export async function show(source) {
  shown = source;
  byId("source-counters").hidden = !source;
  if (!source) return;
  const counters = await list();
  if (shown !== source) return;
  // The account of a source has the names without `fragments_`.
  const counted = counters.map(({ name, help }) => ({ name, help, value: source[name.replace(/^fragments_/, "")] }));
  for (const [cause, value] of Object.entries(source.dropped ?? {})) {
    counted.push({ name: cause, help: cause === "masked" ? "Fragments of events in which the source was masked." : "Fragments in no event for this cause.", value });
  }
  setText(byId("counters-title"), `Counters of ${sourceLabel(source.id)}`);
  fill(byId("counters"), counted.filter(({ value }) => value > 0).map(({ name, help, value }) => ({ cells: [words(name), grouped(value), help] })));
}

export function begin() {
  heads(byId("counters"), ["counter", "value", "meaning"]);
}
