// The address of a view: the path and the parameters behind the # of the page's URL.
// Every state that a reader may want to send to somebody is in it.
import { signal } from "@preact/signals";

// decoded is a part of the path, as it is if its escapes are wrong.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function parse(address) {
  const [path, ...query] = address.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), params: Object.fromEntries(new URLSearchParams(query.join("?"))) };
}

// The address at which the reader left to sign in at another site, which leads back to the page without it.
const left = "agl-left";
try {
  if (location.hash.length < 3 && sessionStorage.getItem(left)) history.replaceState(null, "", sessionStorage.getItem(left));
  sessionStorage.removeItem(left);
} catch {
  // The browser keeps nothing for this page.
}

// keepAddress keeps the address until the page is opened again in this tab.
export function keepAddress() {
  try {
    sessionStorage.setItem(left, location.hash);
  } catch {
    // The reader comes back to the overview.
  }
}

export const route = signal(parse(location.hash));

// Where readers have scrolled to, by address, is taken again when they come back. An entry of the history that has been shown has a state.
const places = new Map();
let shown = location.hash; // the places' address: the URL changes before its event comes, and the old view may scroll between
let wanted = null; // of the view that is coming

history.scrollRestoration = "manual";
// keep notes the place. The browser tells of a scroll with the next frame, which may come after a link has been followed.
const keep = () => wanted === null && places.set(shown, scrollY);
addEventListener("scroll", keep, { passive: true });
for (const act of ["wheel", "touchstart", "pointerdown", "keydown"]) addEventListener(act, () => (wanted = null), { passive: true, capture: true });
addEventListener("hashchange", () => {
  clearTimeout(late);
  pending = null;
  shown = location.hash;
  wanted = (history.state?.shown && places.get(shown)) || 0;
  history.replaceState({ shown: true }, "");
  route.value = parse(shown);
});
history.replaceState({ shown: true }, "");

// settle scrolls to the place of a view, once the view is long enough.
export function settle() {
  if (wanted === null) return;
  scrollTo(0, wanted);
  if (Math.abs(scrollY - wanted) < 2) wanted = null;
}

// href returns the address of a view, for links.
export function href(path, params = {}) {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const query = new URLSearchParams(given).toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (query ? "?" + query : "");
}

export function go(path, params) {
  keep();
  flush();
  location.hash = href(path, params);
}

const writeEvery = 350; // ms; browsers ignore or refuse more than a hundred changes of the address in half a minute
let written = -writeEvery;
let late = 0;
let pending = null; // writes the address

// flush writes the address now: before a link or a key leaves the view, or its last change would not be in the history.
// Before the browser's Back no event comes, and afterwards the entry that was left cannot be written any more: a change
// within writeEvery of another one, and of a Back, is not there after a Forward.
function flush() {
  clearTimeout(late);
  pending?.();
  pending = null;
}
addEventListener("click", (e) => e.target.closest?.("a[href]") && (keep(), flush()), { capture: true });

// setParams changes parameters of this view. It adds no entry to the history. The address follows when the browser lets it.
export function setParams(changes) {
  shown = href(route.value.path, { ...route.value.params, ...changes });
  places.set(shown, scrollY);
  route.value = parse(shown);
  const of = location.hash;
  pending = () => {
    if (location.hash !== of) return; // the reader has gone on
    written = performance.now();
    history.replaceState(history.state, "", shown);
  };
  clearTimeout(late);
  const wait = written + writeEvery - performance.now();
  if (wait <= 0) flush();
  else late = setTimeout(flush, wait);
}
