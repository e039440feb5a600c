// Live parameters: the present value, the configured value, and a field to change it.

import { byId, element, grouped, setText } from "./format.js";
import { whyNot } from "./operator.js";
import { give } from "./requests.js";

const rows = new Map(); // name -> { item, field, mark, back, error, told: the parameter as the server reported it }
let shownFor = null;
let isApplying = false;

const isEdited = ({ field, told }) => field.value.trim() !== told.value;

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
  const row = { item, field, mark, back, error, told: { value: "" } };
  field.addEventListener("input", () => {
    tellError(row, "");
    render();
  });
  field.addEventListener("keydown", (press) => {
    if (press.key !== "Escape" || !isEdited(row)) return;
    field.value = row.told.value;
    tellError(row, "");
    render();
  });
  back.addEventListener("click", () => change({ [name]: row.told.configured }).then(() => field.focus()));
  return row;
}

// An edited field keeps its text when the value changes.
function fill(parameters) {
  for (const told of parameters) {
    if (!rows.has(told.name)) rows.set(told.name, make(told));
    const row = rows.get(told.name);
    const isKept = isEdited(row);
    row.told = told;
    if (!isKept) row.field.value = told.value;
    const isChanged = told.value !== told.configured;
    setText(row.mark, isChanged ? `now ${told.value}, configured: ${told.configured}` : `now ${told.value}, as configured`);
    row.item.className = isChanged ? "changed" : "";
    row.back.setAttribute("aria-label", `Set back ${told.name} to ${told.configured}`);
  }
  const names = parameters.map(({ name }) => name);
  for (const name of rows.keys()) if (!names.includes(name)) rows.delete(name);
  const items = names.map((name) => rows.get(name).item);
  const list = byId("parameter-list");
  // The focused field keeps the focus.
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
  for (const row of rows.values()) row.back.disabled = row.told.value === row.told.configured;
  const holds = rows.size ? "Changes take effect at once, in this run and in later runs of this program." : "This program has no live parameters.";
  setText(byId("parameters-why"), why ? `${why}: parameters cannot be changed here.` : holds);
  setText(byId("parameters-edited"), edited.length ? `${grouped(edited.length)} not applied yet; Escape restores a field` : "");
}

// The field for an error message: of the changed parameters, the one that the message names first.
export function concerned(text, names) {
  const places = names.map((name) => ({ name, place: text.indexOf(name) })).filter(({ place }) => place >= 0);
  return places.sort((one, other) => one.place - other.place)[0]?.name ?? names[0];
}

// Changes all values or none; an error appears beside a field.
async function change(changes) {
  const names = Object.keys(changes);
  for (const name of names) tellError(rows.get(name), "");
  const tell = (text) => {
    const row = rows.get(concerned(text, names));
    if (row) tellError(row, text);
  };
  isApplying = true;
  try {
    const told = await give("parameters", {}, changes, { method: "PATCH", tell });
    if (!told) return;
    // Values in another notation (2000ms, 2s) have been applied, too.
    for (const name of names) if (rows.has(name)) rows.get(name).field.value = rows.get(name).told.value;
    fill(told);
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

// Every change has an entry in the journal.
export function show(live) {
  render();
  if (live.last_entry === shownFor || isApplying) return;
  shownFor = live.last_entry;
  read().catch(() => { shownFor = null; });
}

// Another server may have other parameters with as many journal entries.
export function again() {
  shownFor = null;
}

export function begin() {
  byId("parameters").addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
}
