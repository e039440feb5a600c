// The data flow as a live picture: sources, readout units, builder units, filters, storage. A colour, a bar and a word show how full each
// stage is; a number at an arrow shows how much of the time a stage waits for the next one. In systems whose sources push, gateways take
// the place of readout units, and a farm decides. Stages are green only while events are complete.

import { bandwidth, byId, compact, grouped, percent, setText, sourceLabel, words } from "./format.js";
import { currentProblems, flowing, perSecond } from "./quality.js";
import { hasNeverSent, isMasked, isSilent } from "./sources.js";

const BUSY = 0.5;
const FULL = 0.9;
// Shorter waits are usual and are not shown.
const LEAST_WAIT = 0.05;
const MOST_CELLS = 64;
const SVG = "http://www.w3.org/2000/svg";
// Lengths of the picture, across and down: a box, and the arrow behind it.
const ACROSS = { box: [180, 116], arrow: 44, stages: 5 };
const DOWN = { box: [360, 106], arrow: 20, stages: 5 };
// On a narrower page the boxes are one below the other.
const NARROW_PIXELS = 720;

const level = (share) => (share === null ? 0 : share > FULL ? 2 : share > BUSY ? 1 : 0);
const LEVEL_WORDS = ["free", "busy", "full"];
const greatest = (values) => values.reduce((most, value) => (value === null || value === undefined ? most : Math.max(most ?? 0, value)), null);
const sum = (values) => values.reduce((all, value) => all + value, 0);
const plural = (count, one) => `${grouped(count)} ${one}${count === 1 ? "" : "s"}`;

// What is wrong with the sources, in a few words; empty if they all send.
function wrongSources(live, problems) {
  const silent = live.sources.filter((source) => isSilent(source, live));
  const never = silent.filter((source) => hasNeverSent(source, live)).length;
  const others = live.sources.filter((source) => problems.has(source.id) && !isSilent(source, live)).length;
  const parts = [[never, "never sent"], [silent.length - never, "silent"], [others, "with problems"]];
  const kinds = parts.filter(([count]) => count > 0);
  if (kinds.length === 0) return "";
  return kinds.length === 1 ? `${grouped(kinds[0][0])} ${kinds[0][1]}` : `${grouped(sum(kinds.map(([count]) => count)))} with problems`;
}

// What is wrong with the events that are built now; empty if they are whole.
function wrongEvents(live, flow) {
  if (flow !== "bad") return "";
  const parts = ["incomplete", "doubtful"].map((name) => [live.quality[name].per_second, name]).filter(([rate]) => rate > 0);
  return parts.map(([rate, name]) => `${perSecond(rate)} ${name} / s`).join(", ") || "events not whole";
}

// What the box of sources says, by the state of the run.
const SOURCE_WORDS = { running: "sending", paused: "paused", draining: "draining" };

function sourceKind(source, live, problems) {
  if (isMasked(source)) return "masked";
  if (live.state !== "running") return "level-0";
  return isSilent(source, live) || problems.has(source.id) ? "away" : "sends";
}

export const flowOf = (live) => (["running", "paused", "draining"].includes(live.state) ? flowing(live) : "none");

const isGone = (node) => !node.connected || node.silent;
const gone = (node) => (node.connected ? "does not report" : "not connected");

// The stages of the picture: { name, figure, share, said, bad, cells, wait }. `bad` says what is wrong; `wait` is how much of the time the
// stage waits for the next one. `isReduced`: it works without some of its sources.
export function stages(live) {
  const rates = live.rates;
  const of = new Map((rates?.nodes ?? []).map((node) => [node.node, node]));
  const units = (role) => live.nodes.filter((node) => node.role === role).map((node) => ({ ...node, rates: of.get(node.name) }));
  const share = (nodes, name) => greatest(nodes.map((node) => node.rates?.[name]));
  const readouts = units("readout");
  const builders = units("builder");
  const problems = currentProblems(live);
  const masked = live.sources.filter(isMasked).length;
  const isRunning = live.state === "running";
  const notWhole = wrongEvents(live, flowOf(live));
  const heldBack = greatest((rates?.sources ?? []).map((source) => source.back_pressure_share));
  const [pool, room] = [share(readouts, "pool_share"), share(builders, "full_share")];
  const [filters, disk] = [share(builders, "filter_busy_share"), share(builders, "disk_busy_share")];
  const cell = (nodes, name) => nodes.map((node) => ({
    title: isGone(node) ? `${node.label} ${gone(node)}` : `${node.label}: ${percent(node.rates?.[name] ?? 0)}`,
    kind: isGone(node) ? "away" : `level-${level(node.rates?.[name] ?? null)}`,
  }));
  const rate = (nodes) => sum(nodes.map((node) => node.rates?.rate_hz ?? 0));
  const away = (nodes) => nodes.filter(isGone).map((node) => `${node.label} ${gone(node)}`);
  const { accepted, rejected, quarantined = 0 } = live.ledger.events;
  const decided = accepted + rejected + quarantined;
  const isPush = readouts.length === 0 && builders.length > 0;
  const isUnfiltered = !isPush && filters === null && live.ledger.events.rejected === 0;
  const givenUp = live.quality.problems.some(({ kind, is_current: isCurrent }) => kind === "filters_given_up" && isCurrent);
  const filtered = isPush ? "decided by the farm" : givenUp ? "no decisions" : isUnfiltered ? "all events are kept" : "deciding";
  const receiving = isPush
    ? {
      name: plural(builders.length, "gateway"),
      figure: `${compact(sum((rates?.sources ?? []).map((source) => source.fragments_hz)))} packets/s`,
      share: share(builders, "pool_share"),
      said: "sets in use",
      away: away(builders),
      cells: cell(builders, "pool_share"),
      wait: null,
    }
    : {
      name: plural(readouts.length, "readout unit"),
      figure: `${compact(rate(readouts))} fragments/s`,
      share: pool,
      said: "buffers",
      away: away(readouts),
      cells: cell(readouts, "pool_share"),
      wait: share(readouts, "link_wait_share"),
    };
  const building = isPush
    ? { name: "farm", figure: `${compact(rate(builders))} events/s`, share: null, said: "deciding", bad: notWhole, away: [], cells: [], wait: null }
    : {
      name: plural(builders.length, "builder unit"),
      figure: `${compact(rate(builders))} events/s`,
      share: room,
      said: room === null ? "building" : "buffers",
      bad: notWhole,
      away: away(builders),
      cells: cell(builders, "full_share"),
      wait: null,
    };
  return [
    {
      name: plural(live.sources.length, "source"),
      figure: rates ? bandwidth(rates.bytes_in_per_second) : "–",
      share: null,
      said: `${SOURCE_WORDS[live.state] ?? "no run"}${masked > 0 ? `, ${grouped(masked)} masked` : ""}`,
      bad: isRunning ? wrongSources(live, problems) : "",
      isReduced: masked > 0,
      cells: live.sources.map((source) => ({
        title: `${sourceLabel(source.id)}${isMasked(source) ? ": masked" : ""}`,
        kind: sourceKind(source, live, problems),
      })),
      wait: isRunning ? heldBack : null,
    },
    receiving,
    building,
    {
      name: isPush ? "decisions" : "filter",
      figure: isUnfiltered ? "none" : decided > 0 ? `${percent(live.ledger.events.accepted / decided)} accepted` : "–",
      share: filters,
      said: filters === null ? filtered : "busy",
      bad: givenUp ? "units given up" : "",
      cells: filters === null ? [] : cell(builders, "filter_busy_share"),
      wait: share(builders, "disk_wait_share"),
    },
    {
      name: "storage",
      figure: rates ? bandwidth(rates.bytes_to_disk_per_second) : "–",
      share: disk,
      said: disk === null ? "writing" : "disk busy",
      bad: isRunning && live.limit !== null && /^disk_/.test(live.limit.kind) ? words(live.limit.kind) : "",
      cells: disk === null ? [] : cell(builders, "disk_busy_share"),
      wait: null,
    },
  ];
}

function draw(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

let picture = null;

// The fixed parts; `showStage` fills them.
function build(box, isNarrow) {
  const { box: [width, height], arrow, stages: count } = isNarrow ? DOWN : ACROSS;
  const all = isNarrow ? [width, count * height + (count - 1) * arrow] : [count * width + (count - 1) * arrow, height];
  const svg = draw("svg", { viewBox: `0 0 ${all[0]} ${all[1]}`, role: "img" }, document.createDocumentFragment());
  const parts = [];
  for (let index = 0; index < count; index += 1) {
    const [x, y] = isNarrow ? [0, index * (height + arrow)] : [index * (width + arrow), 0];
    const group = draw("g", { transform: `translate(${x} ${y})` }, svg);
    const frame = draw("rect", { class: "stage", x: 1, y: 1, width: width - 2, height: height - 2, rx: 8 }, group);
    const text = (className, line) => draw("text", { class: className, x: 12, y: line }, group);
    const [name, figure, said] = [text("name", 23), text("figure", 46), text("said", 67)];
    draw("rect", { class: "bar", x: 12, y: 75, width: width - 24, height: 6, rx: 3 }, group);
    const bar = draw("rect", { class: "filled", x: 12, y: 75, width: 0, height: 6, rx: 3 }, group);
    const cells = draw("g", { transform: "translate(12 88)" }, group);
    const line = index + 1 < count ? buildArrow(svg, isNarrow, x, y, width, height, arrow) : null;
    parts.push({ frame, name, figure, said, bar, cells, line, barWidth: width - 24, isNarrow });
  }
  box.replaceChildren(svg);
  picture = { svg, parts, isNarrow };
}

function buildArrow(svg, isNarrow, x, y, width, height, length) {
  const [fromX, fromY] = isNarrow ? [width / 2, y + height] : [x + width, height / 2];
  const turn = isNarrow ? 90 : 0;
  const group = draw("g", { transform: `translate(${fromX} ${fromY}) rotate(${turn})` }, svg);
  draw("path", { class: "arrow", d: `M3 0 H${length - 15} M${length - 17} -7 L${length - 6} 0 L${length - 17} 7` }, group);
  const text = draw("text", isNarrow ? { x: fromX + 16, y: fromY + length / 2 + 4 } : { "text-anchor": "middle" }, svg);
  // Across, one word is above the arrow and one below it.
  for (const y of [fromY - 14, fromY + 24]) draw("tspan", isNarrow ? {} : { x: fromX + length / 2, y }, text);
  return { group, text };
}

function showCells(group, cells, width) {
  // Beyond this number a cell represents several sources or units, and shows the worst of them.
  const each = Math.ceil(cells.length / MOST_CELLS);
  const shown = [];
  for (let first = 0; first < cells.length; first += each) {
    const some = cells.slice(first, first + each);
    const worst = ["away", "masked", "level-2", "level-1", "level-0", "sends"].find((kind) => some.some((cell) => cell.kind === kind));
    const title = some.length === 1 ? some[0].title : `${some[0].title} and ${some.length - 1} more`;
    shown.push({ title, kind: worst });
  }
  while (group.children.length > shown.length) group.lastChild.remove();
  while (group.children.length < shown.length) draw("title", {}, draw("rect", { height: 8, rx: 1 }, group));
  const perRow = Math.min(32, Math.max(8, shown.length));
  shown.forEach(({ title, kind }, index) => {
    const rect = group.children[index];
    const step = width / perRow;
    rect.setAttribute("x", (index % perRow) * step);
    rect.setAttribute("y", Math.floor(index / perRow) * 11);
    rect.setAttribute("width", Math.max(1, step - 1));
    rect.setAttribute("class", kind);
    setText(rect.firstChild, title);
  });
}

function showStage(part, stage) {
  const absent = stage.away?.length ? stage.away.join(", ") : "";
  const filled = stage.share === null ? stage.said : `${stage.said} ${percent(stage.share)}: ${LEVEL_WORDS[level(stage.share)]}`;
  const kind = absent || stage.bad ? "away" : `level-${stage.isReduced ? 1 : level(stage.share)}`;
  const said = absent || stage.bad || filled;
  part.frame.setAttribute("class", `stage ${kind}`);
  part.bar.setAttribute("class", `filled ${kind}`);
  part.bar.setAttribute("width", part.barWidth * Math.min(1, stage.share ?? 0));
  setText(part.name, stage.name);
  setText(part.figure, stage.figure);
  setText(part.said, said);
  showCells(part.cells, stage.cells, part.barWidth);
  if (part.line) {
    part.line.group.setAttribute("class", `level-${level(stage.wait)}`);
    const words = stage.wait >= LEAST_WAIT ? ["waits", ` ${percent(stage.wait)}`] : ["", ""];
    words.forEach((word, index) => setText(part.line.text.children[index], word));
    part.line.text.setAttribute("class", `wait level-${level(stage.wait)}`);
  }
  const wait = stage.wait >= LEAST_WAIT ? `, waits ${percent(stage.wait)} of the time` : "";
  return `${stage.name}: ${stage.figure}, ${said}${wait}`;
}

export function show(live) {
  const box = byId("path");
  const isNarrow = box.clientWidth < NARROW_PIXELS;
  if (picture?.isNarrow !== isNarrow) build(box, isNarrow);
  const told = stages(live).map((stage, index) => showStage(picture.parts[index], stage));
  picture.svg.dataset.flow = flowOf(live);
  picture.svg.setAttribute("aria-label", told.join("; "));
}
