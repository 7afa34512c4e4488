// All rollouts: filtered, sorted, in pages.
import { html } from "../lib/html.js";
import { get } from "../api.js";
import { useQuery } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { number, oneLine, seconds, visible } from "../lib/format.js";
import { outcome } from "../lib/group.js";
import { Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Pages, Table } from "../components/table.js";

const limit = 50;
const statuses = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];

export function Rollouts() {
  const params = route.value.params;
  const offset = Number(params.offset) || 0;
  const sort = { by: params.sort || "start_time", order: params.order || "desc" };
  const status = params.status ? params.status.split(",") : [];
  const labels = params.label ? params.label.split("\n") : [];
  const query = { status_in: status, label: labels, rollout_id_contains: params.q, filter_logic: "and", sort_by: sort.by, sort_order: sort.order, limit, offset };
  const { data, error, reload } = useQuery((abort) => get("rollouts", query, abort), [JSON.stringify(query)], (e) => ["rollout", "attempt", "spans"].includes(e.kind));
  const toggle = (s) => setParams({ status: (status.includes(s) ? status.filter((x) => x !== s) : [...status, s]).join(","), offset: "" });
  return html`
    <h1>Rollouts</h1>
    <form class="filters" role="search" onSubmit=${(e) => e.preventDefault()}>
      <label>Id contains <input type="search" value=${params.q || ""} placeholder="ro-…" onInput=${(e) => setParams({ q: e.target.value.trim(), offset: "" })} /></label>
      <fieldset><legend>Status</legend>${statuses.map((s) => html`<label key=${s} class="check"><input type="checkbox" checked=${status.includes(s)} onChange=${() => toggle(s)} />${s}</label>`)}</fieldset>
      ${labels.map((l) => html`<button key=${l} type="button" aria-label="Remove the filter ${visible(l)}" onClick=${() => setParams({ label: labels.filter((x) => x !== l).join("\n"), offset: "" })}>${oneLine(l, 60)} ×</button>`)}
    </form>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data ? !error && html`<${Loading} />` : data.items.length === 0 ? html`<${Nothing} filtered=${params.q || status.length || labels.length} />` : html`
      <${Table} label="Rollouts" columns=${columns} items=${data.items} id=${(r) => r.rollout_id} open=${(r) => go(["rollouts", r.rollout_id])}
        sort=${sort} onSort=${(s) => setParams({ sort: s.by, order: s.order, offset: "" })} />
      <${Pages} offset=${offset} limit=${limit} total=${data.total} go=${(o) => setParams({ offset: o || "" })} />`}`;
}

const Nothing = ({ filtered }) =>
  filtered
    ? html`<${Empty} title="No rollout matches."><button onClick=${() => setParams({ q: "", status: "", label: "", offset: "" })}>Show all</button></${Empty}>`
    : html`<${Empty} title="No rollouts yet."><p>Put tasks into the queue:</p><pre>agl enqueue tasks.jsonl</pre></${Empty}>`;

const columns = [
  { name: "Rollout", sort: "rollout_id", cell: (r) => html`<a class="mono" href=${href(["rollouts", r.rollout_id])}>${r.rollout_id}</a>` },
  { name: "Input", class: "wide", cell: (r) => html`<bdi>${oneLine(r.input, 120)}</bdi>` },
  { name: "Status", sort: "status", cell: (r) => html`<${Status} value=${r.status} />` },
  { name: "Outcome", cell: (r) => outcome(r.attempt).kind || "" },
  { name: "Reward", class: "num", sort: "reward", cell: (r) => (r.attempt?.reward ? number(r.attempt.reward.value) : "") },
  { name: "Mode", sort: "mode", cell: (r) => r.mode || "" },
  { name: "Step", class: "num", cell: (r) => r.metadata?.step ?? "" },
  { name: "Attempt", class: "num", cell: (r) => r.attempt?.sequence_id ?? "" },
  { name: "Started", sort: "start_time", cell: (r) => html`<${Time} at=${r.start_time} />` },
  { name: "Took", class: "num", cell: (r) => (r.end_time ? seconds(r.end_time - (r.attempt?.start_time ?? r.start_time)) : "") },
  { name: "Worker", class: "mono", cell: (r) => oneLine(r.attempt?.worker_id || "", 40) },
];
