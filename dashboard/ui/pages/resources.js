// What was published: prompts and models, each with its history.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { find, get } from "../api.js";
import { useQuery } from "../hooks.js";
import { route, setParams } from "../route.js";
import { oneLine, visible } from "../lib/format.js";
import { Empty, Failure, JSONText, Loading, Text, Time } from "../components/basic.js";
import { Difference, isPrompt, plain } from "../components/difference.js";
import { Beyond, Pages, offsetOf } from "../components/table.js";

const limit = 50;

export function Resources() {
  const { id, other } = route.value.params;
  const offset = offsetOf(route.value.params);
  const { data, error, reload } = useQuery((abort) => get("resources", { sort_by: "update_time", sort_order: "desc", limit, offset }, abort), [offset], (e) => e.kind === "resources");
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  if (data.total === 0) return html`<h1>Resources</h1><${Empty} title="Nothing was published yet."><p>Algorithms publish prompts and models. For agents that need one without an algorithm, post it to <code>v1/agl/resources</code>.</p></${Empty}>`;
  if (data.items.length === 0) return html`<h1>Resources</h1><${Beyond} total=${data.total} />`;
  const chosen = id || data.items[0].resources_id;
  return html`
    <h1>Resources</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <div class="master">
      <div><ul class="versions" aria-label="Versions">${data.items.map((r) => html`<li key=${r.resources_id}>
        <button class="link mono" aria-pressed=${r.resources_id === chosen} onClick=${() => setParams({ id: r.resources_id, other: "" })}>${oneLine(r.resources_id)}</button>
        <small><${Time} at=${r.update_time} /></small>
        ${r.resources_id !== chosen && html`<button class="small" aria-pressed=${r.resources_id === other} onClick=${() => setParams({ other: r.resources_id === other ? "" : r.resources_id })}>compare</button>`}
      </li>`)}</ul><${Pages} offset=${offset} limit=${limit} total=${data.total} go=${(o) => setParams({ offset: o || "" })} /></div>
      <${Version} key=${chosen + "/" + (other || "")} id=${chosen} other=${other} />
    </div>`;
}

function Version({ id, other }) {
  const read = (name, abort) => find("resources/" + encodeURIComponent(name), abort);
  const { data, error, reload } = useQuery(async (abort) => Promise.all([read(id, abort), other ? read(other, abort) : null]), [id, other], (e) => [id, other].includes(e.resources_id));
  const [raw, setRaw] = useState(false);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const [version, older] = data;
  const names = [...new Set([...Object.keys(version.resources), ...Object.keys(older?.resources || {})])].sort();
  return html`<div>
    <h2><span class="mono">${oneLine(id)}</span>${older && html` <small>compared with</small> <span class="mono">${oneLine(other)}</span>`}</h2>
    <p class="muted">version ${version.version}, created <${Time} at=${version.create_time} /></p>
    ${names.map((name) => html`<section key=${name} class="resource"><h3>${visible(name)} <small>${version.resources[name]?.resource_type || "removed"}</small></h3>
      ${older ? html`<${Difference} before=${plain(older.resources[name])} after=${plain(version.resources[name])} />` : html`<${Resource} value=${version.resources[name]} />`}</section>`)}
    <button class="small" aria-pressed=${raw} onClick=${() => setRaw(!raw)}>raw</button>
    ${raw && html`<${JSONText} value=${version} />`}
  </div>`;
}

const Resource = ({ value }) => (isPrompt(value) ? html`<${Text} class="prompt" value=${value.template} />` : html`<${JSONText} value=${value} />`);
