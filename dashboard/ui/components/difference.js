// What differs between two resources, line by line.
import { html } from "../lib/html.js";
import { diff } from "../lib/diff.js";
import { visible } from "../lib/format.js";

export const isPrompt = (r) => typeof r?.template === "string";

// plain is a resource as text: a prompt's template as it is, all else as JSON.
export const plain = (r) => (r === undefined ? "" : isPrompt(r) ? r.template : JSON.stringify(r, null, 2));

export function Difference({ before, after }) {
  if (before === after) return html`<p class="muted">The same in both.</p>`;
  return html`<div class="diff text code">${diff(before, after).map((d, i) => html`<div key=${i} class=${{ "+": "added", "-": "removed" }[d.sign] || ""}><span aria-hidden="true">${d.sign} </span>${{ "+": html`<span class="hidden">added: </span>`, "-": html`<span class="hidden">removed: </span>` }[d.sign] || ""}${visible(d.line)}</div>`)}</div>`;
}
