// What runs, what waits, what fails and why.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get, post, session, signIns } from "../api.js";
import { emptied, useQuery } from "../hooks.js";
import { onEvent } from "../live.js";
import { href } from "../route.js";
import { count, number, oneLine, seconds } from "../lib/format.js";
import { Act, Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Chart } from "../components/chart.js";
import { now } from "../lib/clock.js";
import { outcome } from "../lib/group.js";
import { projectPage } from "../lib/project.js";

const states = ["queuing", "preparing", "running", "requeuing", "succeeded", "failed", "cancelled"];

// What is asked again only when its count has changed, or changes tell of others: of a rollout that failed again, or of another store.
const unchanged = new Map();
const changes = { resources: 0, failures: 0 };
onEvent((e) => {
  if (e.opened || e.kind === "resources") changes.resources++;
  if (e.opened || e.status === "failed") changes.failures++;
});

async function since(name, total, load) {
  const key = [signIns.value, changes[name], total].join("/");
  if (unchanged.get(name)?.key !== key) unchanged.set(name, { key, data: await load() });
  return unchanged.get(name).data;
}

async function load(abort) {
  const [statistics, { by_status: byStatus, fresh_in: freshIn }, busy, calls] = await Promise.all([
    get("statistics", {}, abort),
    get("statistics/rollouts", {}, abort),
    get("workers", { status_in: "busy", limit: 1 }, abort),
    get("statistics/calls", {}, abort),
  ]);
  const [resources, failures] = await Promise.all([
    since("resources", statistics.total_resources, () => get("resources", { limit: 1, sort_by: "update_time", sort_order: "desc" }, abort)),
    since("failures", byStatus.failed, () => get("rollouts", { status_in: "failed", sort_by: "end_time", sort_order: "desc", limit: 8 }, abort)),
  ]);
  return { statistics, busy: busy.total, resources, failures, byStatus, calls, freshIn };
}

export function Overview() {
  const { data, error, reload } = useQuery(load, [], (e) => ["rollout", "queue", "worker", "resources"].includes(e.kind));
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const { statistics, busy, resources, failures, byStatus, calls } = data;
  return html`
    <h1>Overview</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${session.value?.projects && html`<${Projects} />`}
    <section class="tiles" aria-label="Rollouts by status">
      ${states.map((s) => html`<a key=${s} class="tile" href=${href(["rollouts"], { status: s })}><b>${count(byStatus[s])}</b><${Status} value=${s} /></a>`)}
    </section>
    <section class="tiles" aria-label="The store">
      <a class="tile" href=${href(["workers"])}><b>${count(busy)} of ${count(statistics.total_workers)}</b><span>workers busy</span></a>
      <div class="tile"><b>${count(statistics.total_spans)}</b><span>spans</span></div>
      <a class="tile long" href=${href(["resources"])}><b class="mono">${oneLine(resources.items[0]?.resources_id || "none", 60)}</b><span>latest resources</span></a>
      <div class="tile"><b>${statistics.name}</b><span>up ${seconds(statistics.uptime)}</span></div>
    </section>
    <section>
      <h2>Queue</h2>
      ${statistics.queue_closed ? html`
      <p><b class="status status-cancelled">closed</b> It hands out no rollouts, and runners of agl have ended or will: start them again once it is open.</p>
      <div class="actions"><${Act} key="open" run=${() => post("queues/rollouts/open")}>Open the queue</${Act}></div>` : html`
      <p><b class="status status-succeeded">open</b> Closed, it hands out no more rollouts, and runners of agl end.</p>
      <div class="actions"><${Act} key="close" run=${() => post("queues/rollouts/close")} confirm="Close the queue? Runners will end.">Close the queue</${Act}></div>`}
      <${Enqueue} />
    </section>
    ${statistics.total_rollouts === 0 && html`<${Empty} title="No rollouts yet.">
      <p>Enqueue tasks, and run an agent on them:</p>
      <pre>agl enqueue tasks.jsonl --resources model.json${"\n"}agl runner -- python agent.py</pre>
    </${Empty}>`}
    <h2>Model calls</h2>
    <${Calls} first=${calls} />
    <${Rate} byStatus=${byStatus} />
    <section>
      <h2>Latest failures</h2>
      ${failures.items.length === 0 ? html`<p class="muted">No rollout has failed.</p>` : html`<ul class="failures">${failures.items.map(
        (r) => html`<li key=${r.rollout_id}><a class="mono" href=${href(["rollouts", r.rollout_id])}>${oneLine(r.rollout_id)}</a> <b>${oneLine(outcome(r.attempt).kind || "failed")}</b> ${oneLine(outcome(r.attempt).message || "", 200)} <${Time} at=${r.end_time} /></li>`,
      )}</ul>`}
    </section>`;
}

// Projects links to the pages of the server's projects. The own store of a server with projects is usually empty.
function Projects() {
  const { data, error, reload } = useQuery((abort) => get("projects", {}, abort), [], (e) => e.kind === "document" && (e.document || "").startsWith("project/"));
  const active = (data?.items || []).filter((p) => !p.archive_time);
  return html`<section>
    <h2>Projects</h2>
    <p>Each has a store and a page of its own. What is below is the server's own store.</p>
    ${error && data && html`<${Failure} error=${error} retry=${reload} />`}
    ${error && !data ? (error.status === 403 ? html`<p class="notice">Your key may not list them. Their pages are at <code>${projectPage("NAME")}</code></p>` : html`<${Failure} error=${error} retry=${reload} />`)
    : data && active.length === 0 ? html`<pre>agl project create NAME --store ${projectPage("").replace(/[/]p[/]+$/, "")}</pre>`
    : html`<ul>${active.map((p) => html`<li key=${p.name}><a href=${projectPage(p.name)}>${p.name}</a></li>`)}</ul>`}
  </section>`;
}

// Enqueue takes one task: JSON, or any other text as it is.
function Enqueue() {
  const [task, setTask] = useState("");
  const [mode, setMode] = useState("");
  const [made, setMade] = useState("");
  const enqueue = async () => {
    let input = task; // as it was typed: a number of JavaScript has fewer digits than one of JSON
    try {
      JSON.parse(task);
    } catch {
      input = JSON.stringify(task);
    }
    const [rollout] = await post("queues/rollouts/enqueue", `{"rollouts":[{"input":${input},"mode":${JSON.stringify(mode || null)}}]}`);
    setMade(rollout.rollout_id);
    setTask(emptied(task));
  };
  return html`<details><summary>Enqueue a task</summary><div class="enqueue">
    <label>Task <textarea rows="3" placeholder=${'{"question": "2 + 2"}'} value=${task} onInput=${(e) => setTask(e.target.value)}></textarea></label>
    <label>Mode <select value=${mode} onChange=${(e) => setMode(e.target.value)}><option value="">none</option>${["train", "val", "test"].map((m) => html`<option key=${m}>${m}</option>`)}</select></label>
    <${Act} disabled=${task.trim() === ""} run=${enqueue}>Enqueue</${Act}>
    ${made && html`<span role="status">enqueued: <a class="mono" href=${href(["rollouts", made])}>${made}</a></span>`}
  </div></details>`;
}

const callsEvery = 2000; // ms: no event tells of calls, and rates fall without any

// Calls says how fast models answer, and which versions have answered in the last minutes.
function Calls({ first }) {
  const [later, setLater] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    let busy = false; // a browser sends a server few requests at once: those that are never answered would keep the others
    const ask = async () => {
      if (document.hidden || busy) return;
      busy = true;
      await get("statistics/calls", {}, AbortSignal.any([abort.signal, AbortSignal.timeout(5 * callsEvery)])).then(setLater, () => {}); // the view says what fails
      busy = false;
    };
    const timer = setInterval(ask, callsEvery);
    return () => (clearInterval(timer), abort.abort());
  }, []);
  const calls = later && later.calls >= first.calls ? later : first;
  const rate = calls.per_second;
  return html`<section class="tiles" aria-label="Model calls">
    <div class="tile"><b>${number(rate.calls)}</b><span>calls per second</span></div>
    <div class="tile"><b>${number(rate.prompt_tokens)}</b><span>prompt tokens per second</span></div>
    <div class="tile"><b>${number(rate.reply_tokens)}</b><span>reply tokens per second</span></div>
    <div class="tile"><b>${count(calls.calls)}</b><span>calls since the store started</span></div>
    <div class="tile long"><b class="versions-served">${calls.versions.length === 0 ? "none" : calls.versions.map((v) => html`<a key=${v.version} class="mono" title="${count(v.calls)} calls" href=${href(["rollouts"], { version: v.version })}>${oneLine(v.version, 60)}</a>`)}</b><span>versions that answered in the last ten minutes</span></div>
  </section>`;
}

const span = 120; // seconds that the chart shows

const smooth = 3; // seconds over which a rate is taken

// Rate draws how many rollouts end each second since the view was opened.
function Rate({ byStatus }) {
  const totals = useRef(null);
  totals.current = { good: byStatus.succeeded, bad: byStatus.failed + byStatus.cancelled };
  const [data, setData] = useState([[], [], []]);
  useEffect(() => {
    const seen = [];
    const timer = setInterval(() => {
      if (document.hidden) return;
      seen.push({ at: now(), ...totals.current });
      if (seen.length > span) seen.shift();
      const rates = (name) => seen.map((s, i) => {
        const before = seen[Math.max(0, i - smooth)];
        return s.at > before.at ? Math.max(0, s[name] - before[name]) / (s.at - before.at) : 0; // retention deletes some
      });
      setData([seen.map((s) => s.at), rates("good"), rates("bad")]);
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  if (data[0].length < 2 || !data.slice(1).some((ys) => ys.some(Boolean))) return null; // nothing to draw yet
  return html`<${Chart} label="Rollouts that ended, per second, since this view was opened" time data=${data}
    series=${[{ label: "succeeded", colour: "--good" }, { label: "failed or cancelled", colour: "--bad" }]} range=${(_, __, max) => [0, Math.max(1, max * 1.1)]} />`;
}
