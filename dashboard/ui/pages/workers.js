// Who runs the agents.
import { html } from "../lib/html.js";
import { get } from "../api.js";
import { useQuery } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { number, oneLine } from "../lib/format.js";
import { Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Beyond, Pages, Table, offsetOf } from "../components/table.js";

const limit = 100;
const heartbeats = 10; // seconds; no event tells of one that changes no status

export function Workers() {
  const { sort: by = "last_heartbeat_time", order = "desc" } = route.value.params;
  const offset = offsetOf(route.value.params);
  const sort = { by, order };
  const { data, error, reload } = useQuery(async (abort) => ({ ...(await get("workers", { sort_by: by, sort_order: order, limit, offset }, abort)), freshIn: heartbeats }), [by, order, offset], (e) => e.kind === "worker" || e.kind === "attempt");
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    <h1>Workers</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data.total === 0 ? html`<${Empty} title="No worker has called yet."><p>Start one where the agent can run:</p><pre>agl runner -- python agent.py</pre></${Empty}>` : data.items.length === 0 ? html`<${Beyond} total=${data.total} />` : html`
      <${Table} label="Workers" columns=${columns} items=${data.items} id=${(w) => w.worker_id} open=${(w) => w.current_rollout_id && go(["rollouts", w.current_rollout_id])} sort=${sort} onSort=${(s) => setParams({ sort: s.by, order: s.order })} />
      <${Pages} offset=${offset} limit=${limit} total=${data.total} go=${(o) => setParams({ offset: o || "" })} />`}`;
}

const columns = [
  { name: "Worker", sort: "worker_id", class: "mono", cell: (w) => oneLine(w.worker_id, 60) },
  { name: "Status", sort: "status", cell: (w) => html`<${Status} value=${w.status} />` },
  { name: "Rollout", cell: (w) => w.current_rollout_id && html`<a class="mono" href=${href(["rollouts", w.current_rollout_id])}>${oneLine(w.current_rollout_id)}</a>` },
  { name: "Heartbeat", sort: "last_heartbeat_time", cell: (w) => html`<${Time} at=${w.last_heartbeat_time} />` },
  { name: "Last busy", cell: (w) => html`<${Time} at=${w.last_busy_time} />` },
  { name: "Host", cell: (w) => oneLine(w.heartbeat_stats?.host || "", 40) },
  { name: "CPU", class: "num", cell: (w) => (w.heartbeat_stats?.cpu_usage_pct === undefined ? "" : number(w.heartbeat_stats.cpu_usage_pct) + " %") },
  { name: "Memory", class: "num", cell: (w) => (w.heartbeat_stats?.mem_pct === undefined ? "" : number(w.heartbeat_stats.mem_pct) + " %") },
];
