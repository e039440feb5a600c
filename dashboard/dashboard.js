// The dashboard: shows each view that /api/v1/live/stream sends, topic by topic.

import * as alarms from "./alarms.js";
import * as control from "./control.js";
import * as dialogs from "./dialogs.js";
import * as events from "./events.js";
import * as histograms from "./histograms.js";
import * as incidents from "./incidents.js";
import * as journal from "./journal.js";
import * as numbers from "./numbers.js";
import * as operator from "./operator.js";
import * as parameters from "./parameters.js";
import * as path from "./path.js";
import * as plots from "./plots.js";
import * as quality from "./quality.js";
import * as runs from "./runs.js";
import * as sources from "./sources.js";
import * as tabs from "./tabs.js";
import { clock, learnNames } from "./format.js";

// Views come twice a second: after this time without one, the server is gone.
const GONE_MILLISECONDS = 3000;
const RETRY_MILLISECONDS = 1000;

let heardAt = performance.now();
let heardTime = new Date();
let isGone = false;
let stream = null;

function show(live) {
  heardAt = performance.now();
  heardTime = new Date();
  if (isGone) {
    isGone = false;
    control.showBack();
    journal.again();
    parameters.again();
  }
  learnNames(live.sources);
  operator.show(live);
  control.showState(live);
  quality.show(live);
  parameters.show(live);
  alarms.show(live);
  numbers.show(live);
  path.show(live);
  plots.follow(live);
  sources.show(live);
  runs.show(live);
  events.show(live);
  journal.show(live);
}

function connect() {
  stream = new EventSource("/api/v1/live/stream");
  stream.addEventListener("live", (event) => show(JSON.parse(event.data)));
  stream.addEventListener("error", () => {
    isGone = true;
    watch();
    // After an answer with an error a browser does not try again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MILLISECONDS);
  });
}

// A connection may be open and dead: the age of the last view tells.
function watch() {
  if (performance.now() - heardAt > GONE_MILLISECONDS) isGone = true;
  if (!isGone) return;
  operator.showGone();
  control.showGone(`The server does not answer since ${clock(heardTime * 1e6)}. This page connects again by itself.`);
}

// Another operator has control, or none: what this page may do has changed.
function showHeld() {
  control.showAllowed();
  parameters.showHeld();
  sources.showHeld();
  runs.showHeld();
}

dialogs.begin();
tabs.begin();
operator.begin(showHeld);
control.begin();
parameters.begin();
alarms.begin();
sources.begin();
plots.begin();
histograms.begin();
events.begin();
incidents.begin();
runs.begin();
connect();
setInterval(watch, 1000);
fetch("/api/v1/live").then((answer) => answer.json()).then(show).catch(() => {});
