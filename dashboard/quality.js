// Data quality: whether events are complete, and what is wrong with which source since when.

import { byId, compact, element, grouped, manual, moment, say, setText } from "./format.js";

const MOST_PROBLEMS = 50;
const STATES = { no_data: "No data", good: "Good", incomplete: "Incomplete", doubtful: "Doubtful" };
// What the count of a problem counts.
const COUNTED = { checksums_wrong: "fragment", fragments_faulty: "fragment", fragments_lost: "fragment", events_incomplete: "event" };

const isBad = ({ state }) => state === "incomplete" || state === "doubtful";

// `whole`, `bad` or `none`: whether the data that flow now are complete and consistent.
export function flowing({ quality }) {
  if (quality.state === "good" || (isBad(quality) && !quality.is_current)) return "whole";
  return isBad(quality) ? "bad" : "none";
}

// The kind of the worst current problem of each source.
export function currentProblems({ quality }) {
  const kinds = new Map();
  for (const { kind, source, is_current: isCurrent } of quality.problems) {
    if (isCurrent && source !== null && !kinds.has(source)) kinds.set(source, kind);
  }
  return kinds;
}

// A rate of events, as text.
export const perSecond = (value) => (value === null || value === undefined ? "–" : value > 0 && value < 9.95 ? value.toFixed(1) : grouped(value));

function problem({ kind, count, since_ns: since, last_ns: last, is_current: isCurrent, sentence }) {
  const noun = COUNTED[kind];
  const many = count > 0 ? `, ${grouped(count)} ${noun ? `${noun}${count === 1 ? "" : "s"}` : count === 1 ? "time" : "times"}` : "";
  const [begun, ended] = [moment(since), moment(last)];
  const when = isCurrent ? `since ${begun}` : begun === ended ? `at ${begun}` : `${begun} until ${ended}`;
  return { className: isCurrent ? "current" : "over", what: sentence, when: `${when}${many}`, link: manual(kind) };
}

function showProblems(problems) {
  const box = byId("problems");
  const lines = problems.slice(0, MOST_PROBLEMS).map(problem);
  const more = problems.length - lines.length;
  if (more > 0) lines.push({ className: "over", what: `and ${grouped(more)} more`, when: "", link: manual(problems.at(-1).kind) });
  while (box.children.length > lines.length) box.lastChild.remove();
  while (box.children.length < lines.length) box.append(element("li", {}, element("span"), " ", element("span", { class: "when" }), " ", element("a", {}, "What to do")));
  box.tabIndex = lines.length > 0 ? 0 : -1;
  lines.forEach(({ className, what, when, link }, index) => {
    const item = box.children[index];
    const [said, time, help] = item.children;
    item.className = className;
    setText(said, what);
    setText(time, when);
    for (const [name, value] of Object.entries(link)) help.setAttribute(name, value);
  });
}

export function show(live) {
  const { quality } = live;
  // Before the first event there are no data, and that is no fault.
  const isStuck = quality.state === "no_data" && quality.problems.some((one) => one.is_current);
  const isNow = isStuck || (isBad(quality) && quality.is_current);
  const state = `${STATES[quality.state]}${isBad(quality) && !isNow ? " earlier" : ""}`;
  byId("quality").className = `quality ${isNow ? "bad" : isBad(quality) ? "over" : quality.state}`;
  setText(byId("quality-state"), state);
  setText(byId("quality-sentence"), quality.sentence);
  say("quality-said", `Data quality: ${state}. ${quality.sentence}`);
  for (const name of ["complete", "incomplete", "doubtful"]) {
    const { total, per_second: rate } = quality[name];
    setText(byId(name), perSecond(rate));
    setText(byId(`${name}-total`), `${total < 1e7 ? grouped(total) : compact(total)} in run`);
    if (name !== "complete") byId(name).parentElement.className = total > 0 ? (rate > 0 ? "bad" : "over") : "";
  }
  showProblems(quality.problems);
}
