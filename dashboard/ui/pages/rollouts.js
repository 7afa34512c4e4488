// All rollouts: filtered, sorted, in pages; and searched for what they say.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get } from "../api.js";
import { useQuery } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { count, number, oneLine, plural, seconds } from "../lib/format.js";
import { outcome } from "../lib/group.js";
import { Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Choices, Entry, Pairs } from "../components/filters.js";
import { Beyond, Pages, Table, offsetOf } from "../components/table.js";

const limit = 50;
const statuses = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];
const modes = ["train", "val", "test"];
const outcomes = ["ok", "agent_error", "panic", "timeout", "unresponsive", "cancelled", "context_overflow", "model_error", "budget", "setup_error"];

// These the store has indexes for; a search reads what rollouts say.
const filters = ["q", "status", "mode", "min", "max", "label"];
const searches = ["outcome", "version", "text", "attribute"];

const words = (text, separator) => (text ? text.split(separator) : []);

export function Rollouts() {
  const params = route.value.params;
  const searching = searches.some((name) => params[name]);
  const [more, setMore] = useState(searching);
  const filtered = searching || filters.some((name) => params[name]);
  const query = {
    status_in: words(params.status, ","), mode_in: words(params.mode, ","), rollout_id_contains: params.q, label: words(params.label, "\n"), reward_min: params.min, reward_max: params.max,
  };
  return html`
    <h1>Rollouts</h1>
    <form class="filters" role="search" onSubmit=${(e) => e.preventDefault()}>
      <label>Id contains <input type="search" value=${params.q || ""} placeholder="ro-…" onInput=${(e) => setParams({ q: e.target.value.trim(), offset: "", after: "" })} /></label>
      <${Choices} legend="Status" name="status" values=${statuses} />
      <${Choices} legend="Mode" name="mode" values=${modes} />
      <${Entry} label="Reward from" name="min" type="number" class="short" />
      <${Entry} label="to" name="max" type="number" class="short" />
      <${Pairs} label="Label" name="label" placeholder="step=3" />
      <details open=${more} onToggle=${(e) => setMore(e.currentTarget.open)}><summary>What they say and how they ended</summary><div class="filters">
        <${Entry} label="Text" name="text" type="search" placeholder="in input, messages, exceptions" />
        <${Entry} label="Model version" name="version" />
        <${Pairs} label="Attribute" name="attribute" placeholder="tool.name=search" />
        <${Choices} legend="Outcome" name="outcome" values=${outcomes} />
      </div></details>
      ${filtered && html`<button type="button" class="small" onClick=${() => setParams(Object.fromEntries([...filters, ...searches, "offset", "after"].map((name) => [name, ""])))}>Remove all filters</button>`}
    </form>
    ${searching ? html`<${Found} query=${query} params=${params} />` : html`<${List} query=${query} params=${params} filtered=${filtered} />`}`;
}

function List({ query, params, filtered }) {
  const offset = offsetOf(params);
  const sort = { by: params.sort || "start_time", order: params.order || "desc" };
  const all = { ...query, filter_logic: "and", sort_by: sort.by, sort_order: sort.order, limit, offset };
  const { data, error, reload } = useQuery((abort) => get("rollouts", all, abort), [JSON.stringify(all)], (e) => ["rollout", "attempt", "spans"].includes(e.kind));
  return html`
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data ? !error && html`<${Loading} />` : data.items.length === 0 && data.total > 0 ? html`<${Beyond} total=${data.total} />` : data.items.length === 0 ? html`<${Nothing} filtered=${filtered} />` : html`
      <${Table} label="Rollouts" columns=${columns} items=${data.items} id=${(r) => r.rollout_id} open=${(r) => go(["rollouts", r.rollout_id])}
        sort=${sort} onSort=${(s) => setParams({ sort: s.by, order: s.order, offset: "" })} />
      <${Pages} offset=${offset} limit=${limit} total=${data.total} go=${(o) => setParams({ offset: o || "" })} />`}`;
}

// Found are the results of a search, the newest first. The store answers after two seconds with what it has found until then, and
// says where to go on.
function Found({ query, params }) {
  const all = { ...query, outcome_in: words(params.outcome, ","), version: params.version, text: params.text, attribute: words(params.attribute, "\n"), after: params.after, limit };
  const { data, error, reload } = useQuery((abort) => get("rollouts/search", all, abort), [JSON.stringify(all)]);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <p role="status">${plural(data.items.length, "match").replace("matchs", "matches")} among ${plural(data.looked, "rollout")}${data.next ? ", and there are older ones" : params.after ? ", to the oldest" : ", which are all"}.</p>
    ${data.items.length > 0 && html`<${Table} label="Rollouts" columns=${plain} items=${data.items} id=${(r) => r.rollout_id} open=${(r) => go(["rollouts", r.rollout_id])} />`}
    <nav class="pages" aria-label="Pages">
      ${params.after && html`<button onClick=${() => setParams({ after: "" })}>To the newest</button>`}
      ${data.next && html`<a class="button" href=${href(["rollouts"], { ...params, after: data.next })}>Search older ones</a>`}
      <button onClick=${reload}>Search again</button>
    </nav>
    ${data.items.length === 0 && !data.next && html`<${Empty} title="No rollout matches." />`}`;
}

const Nothing = ({ filtered }) =>
  filtered
    ? html`<${Empty} title="No rollout matches." />`
    : html`<${Empty} title="No rollouts yet."><p>Put tasks into the queue:</p><pre>agl enqueue tasks.jsonl --resources model.json</pre></${Empty}>`;

const columns = [
  { name: "Rollout", sort: "rollout_id", cell: (r) => html`<a class="mono" href=${href(["rollouts", r.rollout_id])}>${oneLine(r.rollout_id)}</a>` },
  { name: "Input", class: "wide", cell: (r) => html`<bdi>${oneLine(r.input, 120)}</bdi>` },
  { name: "Status", sort: "status", cell: (r) => html`<${Status} value=${r.status} />` },
  { name: "Outcome", cell: (r) => oneLine(outcome(r.attempt).kind) },
  { name: "Reward", class: "num", sort: "reward", cell: (r) => (r.attempt?.reward ? number(r.attempt.reward.value) : "") },
  { name: "Mode", sort: "mode", cell: (r) => r.mode || "" },
  { name: "Step", class: "num", cell: (r) => (r.metadata?.step === undefined ? "" : count(r.metadata.step)) },
  { name: "Attempt", class: "num", cell: (r) => r.attempt?.sequence_id ?? "" },
  { name: "Started", sort: "start_time", cell: (r) => html`<${Time} at=${r.start_time} />` },
  { name: "Took", class: "num", cell: (r) => (r.end_time ? seconds(r.end_time - (r.attempt?.start_time ?? r.start_time)) : "") },
  { name: "Worker", class: "mono", cell: (r) => oneLine(r.attempt?.worker_id || "", 40) },
];

// A search has one order.
const plain = columns.map(({ sort, ...column }) => column);
