// Rates, numbers of the run, and the ledger.

import { ago, bandwidth, byId, bytes, element, grouped, percent, setText, span } from "./format.js";
import { beforeNow } from "./plots.js";
import { missingOf } from "./sources.js";

// Numbers that show the value of the reference run at the same age, and its series.
const COMPARED = [
  ["event-rate", "events_per_second", grouped],
  ["bandwidth-in", "bytes_in_per_second", bandwidth],
  ["bandwidth-out", "bytes_to_disk_per_second", bandwidth],
  ["live-time", "live_share", percent],
  ["pool", "pool_share", percent],
];

export function show(live) {
  const set = (id, text) => setText(byId(id), text);
  const isOn = ["running", "paused", "draining"].includes(live.state);
  const rates = isOn ? live.rates : null;
  set("event-rate", rates ? grouped(rates.events_hz) : "–");
  set("bandwidth-in", rates ? bandwidth(rates.bytes_in_per_second) : "–");
  set("bandwidth-out", rates ? bandwidth(rates.bytes_to_disk_per_second) : "–");
  set("live-time", rates ? percent(rates.live_share) : "–");
  const { events, fragments, pools } = live.ledger;
  const missing = live.sources.reduce((sum, source) => sum + missingOf(source), 0);
  set("built", grouped(events.built + events.incomplete_emitted));
  set("missing", grouped(missing));
  byId("missing").parentElement.classList.toggle("bad", missing > 0);
  set("lost", grouped(fragments.lost));
  byId("lost").parentElement.classList.toggle("bad", fragments.lost > 0);
  set("pool", pools.blocks ? percent(pools.held / pools.blocks) : "–");
  set("age", span(live.age_s));
  set("disk", live.disk_free_bytes === null ? "–" : bytes(live.disk_free_bytes));
  set("disk-until", live.disk_left_s === null ? "" : live.disk_left_s === 0 ? "full" : `full in about ${ago(live.disk_left_s)}`);
  for (const [id, series, unit] of COMPARED) {
    const before = beforeNow(series);
    set(`${id}-before`, before ? `run ${before.run}: ${unit(before.value)}` : "");
  }
  showLedger(live);
}

// The ledger: the left side of each equation is the sum of its right side.
function equations({ fragments, events, pools }) {
  return [
    ["fragments received", fragments.received, [
      ["in complete events", fragments.in_complete_events],
      ["in incomplete events", fragments.in_incomplete_events],
      ["lost", fragments.lost],
      ["in flight", fragments.in_flight],
    ]],
    ["events assigned", events.assigned, [
      ["built", events.built],
      ["incomplete", events.incomplete_emitted],
      ["in flight", events.in_flight],
    ]],
    ["events finished", events.built + events.incomplete_emitted, [
      ["accepted", events.accepted],
      ["rejected", events.rejected],
      ["quarantined", events.quarantined],
    ]],
    ["buffers lent", pools.loans, [["returned", pools.returned], ["held", pools.held]]],
  ];
}

function showLedger(live) {
  const body = byId("ledger").tBodies[0];
  const all = equations(live.ledger);
  if (body.rows.length === 0) {
    for (const [left, , parts] of all) {
      const row = body.insertRow();
      row.append(element("th", { scope: "row" }, left), element("td"), element("td", { class: "parts" }));
      for (const [name] of parts) row.cells[2].append(element("span", {}, element("b"), ` ${name}`));
    }
  }
  all.forEach(([, sum, parts], index) => {
    const row = body.rows[index];
    setText(row.cells[1], grouped(sum));
    parts.forEach(([name, count], place) => {
      const part = row.cells[2].children[place];
      setText(part.firstChild, grouped(count));
      const isBad = (name === "lost" || name === "quarantined") && count > 0;
      part.className = isBad ? "bad" : count === 0 ? "nothing" : "";
    });
  });
  const balance = byId("balance");
  // During a run, numbers of different nodes are taken at slightly different times.
  const isLive = ["running", "paused", "draining"].includes(live.state);
  const good = live.ledger.unbalanced.length === 0;
  const isPartial = (live.ledger.partial ?? []).length > 0;
  balance.className = `balance ${isPartial ? "bad" : good ? "good" : isLive ? "" : "bad"}`;
  const wrong = live.ledger.unbalanced.map((one) => `${one.equation}: ${grouped(one.left)} ≠ ${grouped(one.right)}`);
  const partial = live.ledger.partial ?? [];
  const unknown = partial.length === 0 ? "" : `; partial, unknown: ${partial.join("; ")}`;
  setText(balance, (good ? "balanced" : isLive ? "in motion" : `not balanced: ${wrong.join("; ")}`) + unknown);
}
