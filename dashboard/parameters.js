// Parameters that can be changed during a run: the value now, the configured value, and a field to change it.

import { byId, element, grouped, setText } from "./format.js";
import { whyNot } from "./operator.js";
import { give } from "./requests.js";

const rows = new Map(); // name -> { item, field, mark, back, error, known: the parameter as the server has it }
let shownFor = null;
let isApplying = false;

const isEdited = ({ field, known }) => field.value.trim() !== known.value;

function tellError(row, text) {
  setText(row.error, text);
  row.field.setAttribute("aria-invalid", String(Boolean(text)));
}

function make({ name, help }) {
  const id = `parameter-${name}`;
  const field = element("input", { id, name, size: "8", maxlength: "64", autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-mark ${id}-help ${id}-error` });
  const back = element("button", { type: "button" }, "Set back");
  const mark = element("span", { id: `${id}-mark`, class: "mark" });
  const error = element("p", { id: `${id}-error`, class: "bad", role: "alert" });
  const item = element("li", {}, element("label", { for: id }, name), field, back, mark, element("p", { id: `${id}-help`, class: "quiet" }, help), error);
  const row = { item, field, mark, back, error, known: { value: "" } };
  field.addEventListener("input", () => {
    tellError(row, "");
    render();
  });
  field.addEventListener("keydown", (press) => {
    if (press.key !== "Escape" || !isEdited(row)) return;
    field.value = row.known.value;
    tellError(row, "");
    render();
  });
  back.addEventListener("click", () => change({ [name]: row.known.configured }).then(() => field.focus()));
  return row;
}

// Input that is not applied yet stays when the value changes meanwhile.
function fill(parameters) {
  for (const known of parameters) {
    if (!rows.has(known.name)) rows.set(known.name, make(known));
    const row = rows.get(known.name);
    const isKept = isEdited(row);
    row.known = known;
    if (!isKept) row.field.value = known.value;
    const isChanged = known.value !== known.configured;
    setText(row.mark, isChanged ? `now ${known.value}, configured: ${known.configured}` : `now ${known.value}, as configured`);
    row.item.className = isChanged ? "changed" : "";
    row.back.setAttribute("aria-label", `Set back ${known.name} to ${known.configured}`);
  }
  const names = parameters.map(({ name }) => name);
  for (const name of rows.keys()) if (!names.includes(name)) rows.delete(name);
  const items = names.map((name) => rows.get(name).item);
  const list = byId("parameter-list");
  // A field with the keyboard focus keeps it.
  if (items.length !== list.children.length || items.some((item, index) => item !== list.children[index])) list.replaceChildren(...items);
  render();
}

export function showHeld() {
  render();
}

function render() {
  const why = whyNot();
  const edited = [...rows.values()].filter(isEdited);
  byId("parameter-fields").disabled = Boolean(why) || isApplying;
  byId("parameters-apply").disabled = edited.length === 0;
  for (const row of rows.values()) row.back.disabled = row.known.value === row.known.configured;
  const holds = rows.size ? "Changes take effect at once and last until the program ends." : "No parameter can be changed during a run.";
  setText(byId("parameters-why"), why ? `${why}: you cannot change parameters.` : holds);
  setText(byId("parameters-edited"), edited.length ? `${grouped(edited.length)} not applied yet; Escape discards the input in a field` : "");
}

// The field that shows a refusal: of the fields to be changed, the first that the refusal names.
export function concerned(text, names) {
  const places = names.map((name) => ({ name, place: text.indexOf(name) })).filter(({ place }) => place >= 0);
  return places.sort((one, other) => one.place - other.place)[0]?.name ?? names[0];
}

// Applies all changes or none; a refusal appears beside a field.
async function change(changes) {
  const names = Object.keys(changes);
  for (const name of names) tellError(rows.get(name), "");
  const tell = (text) => {
    const row = rows.get(concerned(text, names));
    if (row) tellError(row, text);
  };
  isApplying = true;
  try {
    const known = await give("parameters", {}, changes, { method: "PATCH", tell });
    if (!known) return;
    // The server may write the applied value differently (2000ms, 2s).
    for (const name of names) if (rows.has(name)) rows.get(name).field.value = rows.get(name).known.value;
    fill(known);
  } finally {
    isApplying = false;
    render();
  }
}

async function apply() {
  const edited = [...rows.values()].filter(isEdited);
  if (!edited.length) return;
  const last = edited.find(({ field }) => field === document.activeElement) ?? edited[0];
  await change(Object.fromEntries(edited.map(({ field }) => [field.name, field.value.trim()])));
  (edited.find(({ error }) => error.textContent) ?? last).field.focus();
}

async function read() {
  const answer = await fetch("/api/v1/parameters");
  if (answer.ok) fill(await answer.json());
}

// Each change adds an entry to the journal.
export function show(live) {
  render();
  if (live.last_entry === shownFor || isApplying) return;
  shownFor = live.last_entry;
  read().catch(() => { shownFor = null; });
}

// Another server may have other parameters, and as many entries in its journal.
export function again() {
  shownFor = null;
}

export function begin() {
  byId("parameters").addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
}
