// A table whose rows are walked by j, k and Enter.
import { useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { useKeys } from "../hooks.js";
import { setParams } from "../route.js";
import { count } from "../lib/format.js";
import { Empty } from "./basic.js";

// Table shows items. columns are {name, cell(item), class?, sort?}; open(item) is what
// Enter and a click on the row do.
export function Table({ label, columns, items, id, open, sort, onSort }) {
  const [chosen, choose] = useState(null); // an id: other rows come and go above it
  const at = chosen === null ? -1 : items.findIndex((item) => id(item) === chosen);
  const body = useRef(null);
  const move = (by) => {
    const next = Math.max(0, Math.min(items.length - 1, at + by));
    if (items[next]) choose(id(items[next]));
    body.current?.children[next]?.scrollIntoView({ block: "nearest" });
  };
  useKeys({ j: () => move(1), k: () => move(-1), Enter: () => items[at] && open?.(items[at]) });
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${columns.map((c) => html`<${Head} key=${c.name} column=${c} sort=${sort} onSort=${onSort} />`)}</tr></thead>
      <tbody ref=${body}>${items.map(
        (item, i) => html`<tr key=${id(item)} class=${i === at ? "at" : ""} aria-selected=${i === at ? "true" : undefined}>
          ${columns.map((c) => html`<td class=${c.class || ""}>${c.cell(item)}</td>`)}
        </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

function Head({ column, sort, onSort }) {
  if (!column.sort) return html`<th scope="col" class=${column.class || ""}>${column.name}</th>`;
  const mine = sort?.by === column.sort;
  const order = mine && sort.order === "desc" ? "asc" : "desc";
  return html`<th scope="col" class=${column.class || ""} aria-sort=${mine ? (sort.order === "desc" ? "descending" : "ascending") : "none"}>
    <button class="sort" onClick=${() => onSort({ by: column.sort, order })}>${column.name}${mine ? (sort.order === "desc" ? " ↓" : " ↑") : ""}</button>
  </th>`;
}

// Pages moves through a list.
export function Pages({ offset, limit, total, go }) {
  if (total <= limit && offset === 0) return html`<p class="pages">${total.toLocaleString()} in all</p>`;
  return html`<nav class="pages" aria-label="Pages">
    <button disabled=${offset === 0} onClick=${() => go(Math.max(0, offset - limit))}>Previous</button>
    <span>${(offset + 1).toLocaleString()}–${Math.min(offset + limit, total).toLocaleString()} of ${total.toLocaleString()}</span>
    <button disabled=${offset + limit >= total} onClick=${() => go(offset + limit)}>Next</button>
  </nav>`;
}

// offsetOf reads where a page of a list begins from the parameters of its address.
export function offsetOf(params) {
  const offset = Number(params.offset);
  return Number.isSafeInteger(offset) && offset > 0 ? offset : 0;
}

// Beyond stands for a page that lies behind the end of a list: what was on it may be gone.
export const Beyond = ({ total }) => html`<${Empty} title="There are only ${count(total)}."><button onClick=${() => setParams({ offset: "" })}>To the first page</button></${Empty}>`;
