// What changes in the store, as it changes: one event stream for the whole page.
import { signal } from "@preact/signals";
import { events, relearn, signIns, unauthorized } from "./api.js";

// connection is "live", "connecting", "paused" (the tab is hidden), "lost", "refused" (the key may not read), "absent" (there is no store) or
// "ended" (with the sign-in).
export const connection = signal("connecting");

// absence is the server's message that there is no store here, such as that the project is archived; empty while there is one.
export const absence = signal("");

const listeners = new Set();
let abort = null;
let lostAt = -Infinity; // performance.now() of the latest sign that connections were lost, perhaps without a word
let since = "";
let failures = 0;
let timer = 0;

// onEvent calls listener with each change until the returned function is called.
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// tell tells of a change that this page has made itself, and of which the store tells
// nobody.
export function tell(event) {
  for (const listener of listeners) listener(event);
}

// lostSince says whether connections may have been lost since a time: the answer to what was asked then may never come. The event "opened" is the
// time to ask again.
export const lostSince = (began) => began < lostAt;

async function run(controller) {
  let why = "lost";
  try {
    for await (const event of events(since, controller.signal)) {
      connection.value = "live";
      absence.value = "";
      failures = 0;
      if (event.id) since = event.id;
      tell(event);
    }
  } catch (err) {
    if (controller.signal.aborted) return;
    if (err.status === 0) lostAt = performance.now();
    else if (err.status !== 503) since = "";
    if (err.status === 401 || err.status === 403) absence.value = ""; // there is a store
    if (err.status === 401) {
      connection.value = "ended";
      return; // until the reader has signed in
    }
    if (err.status === 403) why = "refused";
    if (err.status === 404) [why, absence.value] = ["absent", err.message];
  }
  if (controller.signal.aborted) return;
  connection.value = why;
  failures++;
  timer = setTimeout(start, Math.min(500 * 2 ** failures, 10_000) * (0.5 + Math.random() / 2));
}

function stop() {
  clearTimeout(timer);
  abort?.abort();
  abort = null;
}

function start() {
  stop();
  if (document.hidden) {
    connection.value = "paused";
    return;
  }
  if (unauthorized.value) {
    connection.value = "ended";
    return;
  }
  connection.value = "connecting";
  abort = new AbortController();
  run(abort);
}

// look finds out whether the reader has signed in elsewhere meanwhile.
function look() {
  if (!document.hidden) relearn().catch(() => {}); // the views say that the store cannot be reached
}

function lost() {
  lostAt = performance.now();
  start();
}

const sleepCheckEvery = 5000; // ms; a check that comes much later means that the machine has slept, or the tab was hidden for long

// follow keeps the stream open while somebody looks at the page. A connection may be gone without a word when the network changes, and after the machine
// has slept: then a new one is opened.
export function follow() {
  for (const change of ["online", "offline"]) addEventListener(change, lost);
  let awake = Date.now();
  const slept = () => -awake + (awake = Date.now()) > 3 * sleepCheckEvery;
  setInterval(() => slept() && lost(), sleepCheckEvery);
  document.addEventListener("visibilitychange", () => {
    (slept() ? lost : start)();
    look();
  });
  addEventListener("focus", () => unauthorized.value && look());
  signIns.subscribe(() => {
    since = "";
    start();
  });
}
