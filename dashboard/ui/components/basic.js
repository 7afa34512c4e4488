// The small parts of which pages are made.
import { useErrorBoundary, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useTick } from "../hooks.js";
import { ago, dateTime, visible } from "../lib/format.js";

export const Status = ({ value }) => html`<span class="status status-${String(value).replace(/[^a-z]/g, "")}">${value}</span>`;

// Time shows how long ago something was, or what say makes of it, and the exact time on demand.
export function Time({ at, say = ago }) {
  useTick();
  return at ? html`<time datetime=${new Date(at * 1000).toISOString()} title=${dateTime(at)}>${say(at)}</time>` : "–";
}

export const Failure = ({ error, retry }) => html`
  <div class="notice bad" role="alert"><p>${visible(String(error.message))}</p>${retry && html`<button onClick=${retry}>Try again</button>`}</div>`;

// Guard shows what is in it, or the mistake of the page for which it cannot: the rest of the page goes on.
export function Guard({ children }) {
  const [error, retry] = useErrorBoundary(console.error);
  return error ? html`<${Failure} error=${{ message: "This cannot be shown: " + error.message }} retry=${retry} />` : children;
}

// Empty says that there is nothing, and what to do next.
export const Empty = ({ title, children }) => html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;

export const Loading = () => html`<p class="loading" role="status">Loading…</p>`;

export function Copy({ text, label = "Copy" }) {
  const [said, say] = useState("");
  const copy = async () => {
    say(await navigator.clipboard.writeText(text).then(() => "Copied", () => "The browser did not allow it"));
    setTimeout(() => say(""), 1500);
  };
  if (!navigator.clipboard) return null; // pages that are not from this machine or over TLS have none
  return html`<button class="small" onClick=${copy} aria-live="polite">${said || label}</button>`;
}

const shownAtFirst = 20_000;

// Text shows what an agent or a model wrote. It is never markup; long ones are cut
// until the reader asks for more.
export function Text({ value, class: name = "" }) {
  const [most, setMost] = useState(shownAtFirst);
  const text = String(value ?? "");
  const rest = text.length - most;
  return html`<div class="text ${name}" dir="auto" tabindex=${name ? "0" : undefined}>${visible(text.slice(0, most))}${rest > 0 &&
  html`<button class="small more" onClick=${() => setMost(most * 5)}>show more of ${rest.toLocaleString()} characters</button>`}</div>`;
}

export const JSONText = ({ value }) => html`<${Text} class="code" value=${JSON.stringify(value, null, 2)} />`;

// Act is a button for what changes something. It reports a failure beside itself and
// asks first if the act cannot be undone.
export function Act({ run, children, confirm: question, danger = false, small = false, disabled = false }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const click = async () => {
    if (question && !confirm(question)) return;
    setBusy(true);
    setError(null);
    try {
      await run();
    } catch (err) {
      setError(err);
    }
    setBusy(false);
  };
  return html`<span class="act"><button class=${danger ? "danger" : small ? "small" : ""} disabled=${busy || disabled} onClick=${click}>${children}</button>${error &&
  html`<span class="act-error" role="alert">${visible(String(error.message))}</span>`}</span>`;
}

export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
