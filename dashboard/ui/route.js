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

function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), params: Object.fromEntries(new URLSearchParams(query)) };
}

export const route = signal(parse());
addEventListener("hashchange", () => (route.value = parse()));

// href returns the address of a view, for links.
export function href(path, params = {}) {
  const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const query = new URLSearchParams(given).toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (query ? "?" + query : "");
}

export function go(path, params) {
  location.hash = href(path, params);
}

// setParams changes parameters of this view. It adds no entry to the history.
export function setParams(changes) {
  const params = { ...route.value.params, ...changes };
  history.replaceState(null, "", href(route.value.path, params));
  route.value = parse();
}
