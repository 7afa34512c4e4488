// The client of the store's REST API. Paths are relative to the page, so that it works
// behind any prefix.
import { signal } from "@preact/signals";
import { setByDate } from "./lib/clock.js";
import { parse } from "./lib/json.js";

// here is the address of the page without a user and a password: fetch refuses a URL that has them.
export const here = location.origin + location.pathname;

const base = new URL("v1/agl/", here);

// session says who has signed in, how one can, and whether the server has projects: {methods, identity, projects}, null until the store
// has said so. The session itself is a cookie that no script can read.
export const session = signal(null);

// bearer is a key for a store that keeps no sessions; it is gone when the page is.
let bearer = "";

// unauthorized is true when the store asked for a key that it has not been given.
export const unauthorized = signal(false);

// lapsed is true when a sign-in has ended by itself: its key has expired or was revoked, or its session is over.
export const lapsed = signal(false);

// signIns counts changes of who is signed in: what was read before is somebody else's.
export const signIns = signal(0);

// learn asks the store who has signed in.
export async function learn() {
  const by = signIns.value;
  const says = await get("login");
  if (by !== signIns.value) return learn(); // somebody has signed in meanwhile
  session.value = says;
  return session.value;
}

// relearn asks again who has signed in: another tab of this browser may have changed it.
export async function relearn() {
  const by = signIns.value;
  const says = await get("login");
  const before = session.value?.identity;
  if (by !== signIns.value || !says.identity || (!unauthorized.value && says.identity.id === before?.id && says.identity.name === before?.name)) return;
  session.value = says;
  unauthorized.value = lapsed.value = false;
  signIns.value++;
}

const notKept = "The store has accepted the key, but the browser does not send the cookie of the sign-in. Either it blocks cookies, or the store does not know the " +
  "address of this page: use https:// if the store has TLS or a trusted proxy, and start a store behind a path with --public-url.";

// signIn signs in by a key; it throws an APIError.
export async function signIn(key) {
  try {
    const identity = await post("login", { key });
    const says = await get("login").catch(() => null);
    if (says && !says.identity) throw new APIError(0, notKept);
    if (session.value) session.value = { ...session.value, identity }; // otherwise the page is still asking the store
  } catch (err) {
    if (err.status !== 501) throw err;
    bearer = key;
    await learn();
  }
  unauthorized.value = lapsed.value = false;
  signIns.value++;
}

export async function signOut() {
  if (bearer) bearer = "";
  else await post("logout", {});
  session.value = { ...session.value, identity: null };
  unauthorized.value = true;
  lapsed.value = false;
  signIns.value++;
}

// refused notes that the store knows nobody who has made a request.
function refused() {
  lapsed.value ||= Boolean(bearer || session.value?.identity);
  bearer = "";
  if (session.value) session.value = { ...session.value, identity: null };
  unauthorized.value = true;
}

// oidcLogin is the page that leads to the identity provider.
export const oidcLogin = new URL("login/oidc", base).href;

// APIError is an answer that is not 2xx, or none; status is 0 then.
export class APIError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function call(method, path, { params, body, signal: abort } = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(params || {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const v of Array.isArray(value) ? value : [value]) url.searchParams.append(name, v);
  }
  const headers = { "X-Requested-With": "agl" }; // or the browser shows a dialog of its own after 401
  if (bearer) headers.Authorization = "Bearer " + bearer;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const by = signIns.value;
  let response;
  try {
    response = await fetch(url, { method, headers, body: body === undefined || typeof body === "string" ? body : JSON.stringify(body), signal: abort, credentials: "same-origin" });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new APIError(0, "the store cannot be reached");
  }
  setByDate(response.headers.get("Date"));
  if (!response.ok) {
    if (response.status === 401 && path !== "login" && by === signIns.value) refused();
    throw new APIError(response.status, await errorText(response));
  }
  return response;
}

// errorText reads the message of an error document, whichever form it has.
async function errorText(response) {
  const text = await response.text();
  if (/html/.test(response.headers.get("Content-Type"))) return `the store cannot be reached: a server in front of it answered ${response.status}`;
  try {
    const doc = JSON.parse(text);
    const detail = doc.detail ?? doc.error?.message ?? doc.error ?? doc.message;
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((d) => [d.loc?.join("."), d.msg].filter(Boolean).join(": ")).join("; ");
  } catch {
    // Not JSON.
  }
  return text.trim().slice(0, 300) || `the store answered ${response.status}`;
}

export async function get(path, params, abort) {
  return parse(await (await call("GET", path, { params, signal: abort })).text());
}

// find gets a rollout or resources. For those that it does not have the store answers null, which is an error with the status 410 here:
// for these paths 404 means that there is no store.
export async function find(path, abort) {
  const found = await get(path, {}, abort);
  if (found === null) throw new APIError(410, "the store does not have it");
  return found;
}

// post sends a body, which is a document or its JSON.
export async function post(path, body) {
  return parse(await (await call("POST", path, { body })).text());
}

export async function del(path) {
  await call("DELETE", path);
}

// querySpans returns a page of an attempt's spans: the one with an id, those with a name, or all; with the attributes in names, or all.
export async function querySpans(rolloutID, attemptID, { id, name, names, offset, limit }, abort) {
  return get("spans", { rollout_id: rolloutID, attempt_id: attemptID, span_id: id, name, attribute_names: names, limit, offset }, abort);
}

// spans yields the spans of a rollout from some place on in pages, in the order of their sequence ids, with the attributes in names, or all.
// Each call of a conversation has all messages before it, so a page of whole ones is small.
export async function* spans(rolloutID, attemptID, abort, { names, from = 0 } = {}) {
  const limit = names ? 1000 : 100;
  for (let offset = from; ; offset += limit) {
    const page = await querySpans(rolloutID, attemptID, { names, limit, offset }, abort);
    yield page;
    if (offset + page.items.length >= page.total || page.items.length === 0) return;
  }
}

const silence = 25_000; // ms; the store sends a heartbeat every 15 s, so a stream that is silent for longer has lost its connection without an error

// heard waits for the answer to the request for events, or for the next part of it.
async function heard(answer) {
  let timer = 0;
  const silent = new Promise((_, fail) => (timer = setTimeout(() => fail(new APIError(0, "the store's stream of events is silent")), silence)));
  try {
    return await Promise.race([answer, silent]);
  } finally {
    clearTimeout(timer);
  }
}

// events yields the changes of the store after the event since, until abort. A new
// stream begins with the event "reset", since what happened before is not told, and one that
// goes on with "resumed"; both are opened. Each half second in which there were too many changes to tell is a reset, too.
export async function* events(since, abort) {
  const by = signIns.value;
  const response = await heard(call("GET", "events", { params: { since, every: 0.5 }, signal: abort }));
  yield { kind: since ? "resumed" : "reset", opened: true };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await heard(reader.read());
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (!data) continue;
      const event = JSON.parse(data);
      if (event.code === "unauthorized" && by === signIns.value) refused();
      if (!event.kind) throw new APIError(event.code === "unauthorized" ? 401 : 500, event.detail || "the store ended the stream");
      yield event;
    }
  }
}
