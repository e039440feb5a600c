// Tabs: one panel is shown at a time. Arrow keys, Home and End go from tab to tab; the page remembers the last one.

import { byId } from "./format.js";
import { recall, remember } from "./memory.js";

const all = () => [...byId("tabs").children];
const offered = () => all().filter((tab) => !tab.hidden);

function select(tab) {
  for (const each of all()) {
    const isSelected = each === tab;
    each.setAttribute("aria-selected", String(isSelected));
    each.tabIndex = isSelected ? 0 : -1;
    byId(each.getAttribute("aria-controls")).hidden = !isSelected;
  }
}

function choose(tab) {
  remember("tab", tab.id);
  select(tab);
}

// Offers a tab, or hides it. A hidden tab that was selected gives way to the first one.
export function offer(id, isOffered) {
  const tab = byId(id);
  if (tab.hidden !== isOffered) return;
  tab.hidden = !isOffered;
  if (!isOffered && tab.getAttribute("aria-selected") === "true") select(offered()[0]);
  if (isOffered && recall("tab") === id) select(tab);
}

export function begin() {
  const list = byId("tabs");
  list.addEventListener("click", (click) => {
    const tab = click.target.closest("[role=tab]");
    if (tab) choose(tab);
  });
  list.addEventListener("keydown", (press) => {
    const tabs = offered();
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: (at + 1) % tabs.length, ArrowLeft: (at - 1 + tabs.length) % tabs.length, Home: 0, End: tabs.length - 1 }[press.key];
    if (at < 0 || to === undefined) return;
    press.preventDefault();
    choose(tabs[to]);
    tabs[to].focus();
  });
  select(offered().find((tab) => tab.id === recall("tab")) ?? offered()[0]);
}
