// What runs, what waits, what fails and why.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get, post } from "../api.js";
import { onEvent } from "../live.js";
import { useQuery } from "../hooks.js";
import { href } from "../route.js";
import { count, oneLine, seconds } from "../lib/format.js";
import { Act, Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Chart } from "../components/chart.js";
import { outcome } from "../lib/group.js";

const states = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];

async function load(abort) {
  const recent = (status) => get("rollouts", { status_in: status, sort_by: "start_time", sort_order: "desc", limit: 8 }, abort);
  const [statistics, workers, resources, failures, ...pages] = await Promise.all([
    get("statistics", {}, abort),
    get("workers", { limit: 200 }, abort),
    get("resources", { limit: 1, sort_by: "update_time", sort_order: "desc" }, abort),
    recent("failed"),
    ...states.map((status) => get("rollouts", { status_in: status, limit: 1 }, abort)),
  ]);
  return { statistics, workers, resources, failures, byStatus: Object.fromEntries(states.map((s, i) => [s, pages[i].total])) };
}

export function Overview() {
  const { data, error, reload } = useQuery(load, [], (e) => e.kind === "rollout" || e.kind === "queue" || e.kind === "worker");
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const { statistics, workers, resources, failures, byStatus } = data;
  const busy = workers.items.filter((w) => w.status === "busy").length;
  return html`
    <h1>Overview</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${statistics.total_rollouts === 0 && html`<${Empty} title="No rollouts yet.">
      <p>Enqueue tasks, and run an agent on them:</p>
      <pre>agl enqueue tasks.jsonl${"\n"}agl runner -- python agent.py</pre>
    </${Empty}>`}
    <section class="tiles" aria-label="Rollouts by status">
      ${states.map((s) => html`<a key=${s} class="tile" href=${href(["rollouts"], { status: s })}><b>${count(byStatus[s])}</b><${Status} value=${s} /></a>`)}
    </section>
    <section class="tiles" aria-label="The store">
      <a class="tile" href=${href(["workers"])}><b>${busy} of ${count(workers.total)}</b><span>workers busy</span></a>
      <div class="tile"><b>${count(statistics.total_spans)}</b><span>spans</span></div>
      <a class="tile long" href=${href(["resources"])}><b class="mono">${resources.items[0]?.resources_id || "none"}</b><span>latest resources</span></a>
      <div class="tile"><b>${statistics.name}</b><span>up ${seconds(statistics.uptime)}</span></div>
    </section>
    <${Rate} />
    <section>
      <h2>Queue</h2>
      <p>A closed queue hands out no more rollouts; runners of agl then end.</p>
      <${Act} run=${() => post("queues/rollouts/close")} confirm="Close the queue? Runners will end.">Close the queue</${Act}>
      <${Act} run=${() => post("queues/rollouts/open")}>Open the queue</${Act}>
    </section>
    <section>
      <h2>Latest failures</h2>
      ${failures.items.length === 0 ? html`<p class="muted">No rollout has failed.</p>` : html`<ul class="failures">${failures.items.map(
        (r) => html`<li key=${r.rollout_id}><a class="mono" href=${href(["rollouts", r.rollout_id])}>${r.rollout_id}</a> <b>${outcome(r.attempt).kind || "failed"}</b> ${oneLine(outcome(r.attempt).message || "", 200)} <${Time} at=${r.end_time} /></li>`,
      )}</ul>`}
    </section>`;
}

const span = 120; // seconds that the chart shows

// Rate draws how many rollouts end each second, counted from the events since the view
// was opened.
function Rate() {
  const counts = useRef(new Map());
  const [data, setData] = useState([[], [], []]);
  useEffect(() => {
    const opened = Math.floor(Date.now() / 1000);
    const off = onEvent((e) => {
      if (e.kind !== "rollout" || !["succeeded", "failed", "cancelled"].includes(e.status)) return;
      const second = Math.floor(Date.now() / 1000);
      const at = counts.current.get(second) || { good: 0, bad: 0 };
      if (e.status === "succeeded") at.good++;
      else at.bad++;
      counts.current.set(second, at);
    });
    const timer = setInterval(() => {
      if (document.hidden) return;
      const now = Math.floor(Date.now() / 1000) - 1;
      const from = Math.max(opened, now - span);
      const x = Array.from({ length: Math.max(0, now - from + 1) }, (_, i) => from + i);
      for (const second of counts.current.keys()) if (second < now - span) counts.current.delete(second);
      setData([x, x.map((s) => counts.current.get(s)?.good || 0), x.map((s) => counts.current.get(s)?.bad || 0)]);
    }, 1000);
    return () => {
      off();
      clearInterval(timer);
    };
  }, []);
  if (data[0].length < 2 || !data.slice(1).some((ys) => ys.some(Boolean))) return null; // nothing to draw yet
  return html`<${Chart} label="Rollouts that ended, per second, since this view was opened" time data=${data}
    series=${[{ label: "succeeded", colour: "--good" }, { label: "failed or cancelled", colour: "--bad" }]} range=${(_, __, max) => [0, Math.max(1, max * 1.1)]} />`;
}
