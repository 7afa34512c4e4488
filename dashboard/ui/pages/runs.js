// All runs of algorithms, and the curves of one or of several over each other.
import { useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get, here } from "../api.js";
import { useQuery, useTick } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { columns, layout, trained } from "../lib/metrics.js";
import { count, dateTime, number, oneLine, seconds, silent, visible } from "../lib/format.js";
import { Chart } from "../components/chart.js";
import { Empty, Failure, JSONText, Loading, Status, Text, Time } from "../components/basic.js";
import { Beyond, Pages, Table, offsetOf } from "../components/table.js";

const limit = 50;
const list = (text) => (text || "").split(",").filter(Boolean);
const isRun = (e) => e.kind === "document" && e.document.startsWith("run/");
const reward = (r) => {
  const { values } = trained({ values: r.metrics });
  return values.reward_mean ?? values.pass_rate;
};
const validation = (r) => r.metrics["validation/pass_rate"] ?? r.metrics["validation/reward_mean"];

function RunStatus({ run }) {
  useTick();
  return html`<${Status} value=${run.status} />${silent(run) && html` <small>${silent(run)}</small>`}`;
}

export function Runs() {
  const { compare } = route.value.params;
  const offset = offsetOf(route.value.params);
  const chosen = list(compare);
  const { data, error, reload } = useQuery((abort) => get("runs", { limit, offset }, abort), [offset], isRun);
  const toggle = (id) => setParams({ compare: (chosen.includes(id) ? chosen.filter((c) => c !== id) : [...chosen, id]).join(",") });
  const columns = [
    { name: "Compare", cell: (r) => html`<input type="checkbox" aria-label="Compare ${r.name || r.run_id}" checked=${chosen.includes(r.run_id)} onChange=${() => toggle(r.run_id)} />` },
    { name: "Run", cell: (r) => html`<a class="mono" href=${href(["runs", r.run_id])}>${oneLine(r.run_id)}</a>` },
    { name: "Name", cell: (r) => html`<bdi>${oneLine(r.name, 60)}</bdi>` },
    { name: "Algorithm", cell: (r) => oneLine(r.algorithm, 40) },
    { name: "Status", cell: (r) => html`<${RunStatus} run=${r} />` },
    { name: "Step", class: "num", cell: (r) => count(r.step) },
    { name: "Reward", class: "num", cell: (r) => number(reward(r)) },
    { name: "Validation", class: "num", cell: (r) => number(validation(r)) },
    { name: "Loss", class: "num", cell: (r) => number(r.metrics.loss) },
    { name: "Started", cell: (r) => html`<${Time} at=${r.start_time} />` },
    { name: "Last heard", cell: (r) => html`<${Time} at=${r.update_time} />` },
    { name: "Error", class: "wide", cell: (r) => html`<bdi>${oneLine(r.error, 120)}</bdi>` },
  ];
  return html`
    <h1>Runs</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${!data ? !error && html`<${Loading} />` : data.total === 0 ? html`<${Nothing} />` : data.items.length === 0 ? html`<${Beyond} total=${data.total} />` : html`
      ${chosen.length > 1 && html`<p><a href=${href(["runs", chosen[0]], { compare: chosen.slice(1).join(",") })}>Show ${chosen.length} runs over each other</a></p>`}
      <${Table} label="Runs" columns=${columns} items=${data.items} id=${(r) => r.run_id} open=${(r) => go(["runs", r.run_id])} />
      <${Pages} offset=${offset} limit=${limit} total=${data.total} go=${(o) => setParams({ offset: o || "" })} />`}`;
}

const Nothing = () => html`<${Empty} title="No runs yet."><p>A run that uses this store is shown here with its curves:</p><pre>agl init first
cd first
agl train agl.yaml --store ${new URL(".", here).href.replace(/\/$/, "")}</pre></${Empty}>`;

// What is known of each run's metrics, so that a change asks only for the steps since. Nobody tells of values that came late to earlier
// steps, or again from a run that resumed: all are read again after a while.
const known = new Map();
const wholeEvery = 5; // seconds

async function read(id, abort) {
  const path = "runs/" + encodeURIComponent(id);
  const run = await get(path, {}, abort);
  const of = run.status + "/" + run.start_time; // a run that was deleted may begin again under its id
  let have = known.get(id);
  if (have?.of !== of || performance.now() - have.whole >= 1000 * wholeEvery) have = { items: [], whole: performance.now() };
  const from = have.items.at(-1)?.step; // which may have got further metrics
  const fresh = await get(path + "/metrics", { from }, abort);
  const items = [...have.items.filter((m) => m.step < from), ...fresh.items.map(trained)];
  known.set(id, { items, of, whole: have.whole });
  return { ...run, items, partly: from !== undefined, label: run.name ? visible(run.name) + " " + id : id };
}

// beside reads a run to compare with, which may be gone.
async function beside(id, abort) {
  try {
    return await read(id, abort);
  } catch (error) {
    if (error.status >= 400 && error.status < 500 && error.status !== 401) return { gone: id, why: error.message };
    throw error;
  }
}

const chartsAtOnce = 40;

export function Run({ id }) {
  const others = [...new Set(list(route.value.params.compare))].filter((o) => o !== id);
  const all = [id, ...others];
  const concerns = (e) => isRun(e) && all.includes(e.document.slice("run/".length));
  const load = async (abort) => {
    for (const other of known.keys()) if (!all.includes(other)) known.delete(other); // a run may have a hundred MB of metrics
    const runs = await Promise.all([read(id, abort), ...others.map((o) => beside(o, abort))]);
    return { runs, freshIn: runs.some((r) => r.partly) ? wholeEvery : 0 };
  };
  const { data, error, reload } = useQuery(load, [all.join()], concerns);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} /><a href=${href(["runs"])}>To all runs</a>` : html`<${Loading} />`;
  const { runs } = data;
  const [run] = runs;
  const gone = runs.filter((r) => r.gone);
  return html`
    <h1>${run.name && html`<bdi>${visible(run.name)}</bdi> `}<span class="mono">${oneLine(run.run_id)}</span> <${RunStatus} run=${run} /></h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <${Facts} run=${run} />
    ${run.metadata.search && html`<p><a href=${href(["runs", id, "prompts"])}>Its prompts: the tree of candidates, their scores, and what each changed</a></p>`}
    <${Compare} id=${id} others=${others} runs=${runs} />
    ${gone.map((r) => html`<p key=${r.gone} class="notice">The run ${visible(r.gone)} cannot be compared: ${visible(r.why)}</p>`)}
    <${Curves} runs=${runs.filter((r) => !r.gone)} open=${(step) => go(["runs", id, "steps", String(step)])} />`;
}

function Facts({ run }) {
  const { search, ...settings } = run.metadata; // the search has a view of its own
  const facts = [
    ["Algorithm", visible(run.algorithm) || "–"], ["Step", count(run.step)], ["Reward", number(reward(run))], ["Validation", number(validation(run))],
    ["Started", html`<${Time} at=${run.start_time} /> <small>${dateTime(run.start_time)}</small>`],
    ...(run.end_time ? [["Took", seconds(run.end_time - run.start_time)]] : [["Last heard", html`<${Time} at=${run.update_time} />`]]),
  ];
  return html`
    <dl class="facts">${facts.map(([k, v]) => html`<div key=${k}><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>
    ${run.error && html`<div class="notice bad"><${Text} class="said" value=${run.error} /></div>`}
    ${Object.keys(settings).length > 0 && html`<details><summary>Settings</summary><${JSONText} value=${settings} /></details>`}`;
}

const runsAtOnce = 200;

// Compare chooses the runs that are drawn over this one.
function Compare({ id, others, runs }) {
  const [open, setOpen] = useState(others.length > 0);
  const { data } = useQuery((abort) => (open ? get("runs", { limit: runsAtOnce }, abort) : null), [open], isRun);
  const newest = (data?.items || []).filter((r) => r.run_id !== id);
  const older = data ? others.filter((o) => !newest.some((r) => r.run_id === o)).map((o) => ({ run_id: o, name: runs.find((r) => r.run_id === o)?.name ?? "" })) : [];
  const toggle = (o) => setParams({ compare: (others.includes(o) ? others.filter((x) => x !== o) : [...others, o]).join(",") });
  return html`<details open=${open} onToggle=${(e) => setOpen(e.currentTarget.open)}><summary>Compare with other runs</summary>
    ${data && data.items.length < 2 && html`<p class="muted">This is the only run of the store.</p>`}
    ${data && data.total > data.items.length && html`<p class="muted">The newest ${count(data.items.length)} of ${count(data.total)} runs. <a href=${href(["runs"], { compare: [id, ...others].join(",") })}>Choose among all</a></p>`}
    <fieldset class="runs"><legend>Runs</legend>${[...older, ...newest].map((r) => html`<label key=${r.run_id} class="check">
      <input type="checkbox" checked=${others.includes(r.run_id)} onChange=${() => toggle(r.run_id)} /><bdi>${oneLine(r.name, 40)}</bdi> <span class="mono">${oneLine(r.run_id)}</span></label>`)}</fieldset>
  </details>`;
}

function Curves({ runs, open }) {
  const { charts, rest } = useMemo(() => layout(runs), [runs]);
  const [most, setMost] = useState(0);
  if (!charts.length && !rest.length) return html`<${Empty} title="No metrics yet."><p>The first step of the run brings some.</p></${Empty}>`;
  return html`
    <div class="charts">${charts.map((c) => html`<${Curve} key=${c.title} chart=${c} open=${open} />`)}</div>
    ${most > 0 && html`<div class="charts">${rest.slice(0, most).map((c) => html`<${Curve} key=${c.title} chart=${c} open=${open} />`)}</div>`}
    ${rest.length > most && html`<button class="small" onClick=${() => setMost(most + chartsAtOnce)}>Show ${most > 0 || rest.length > chartsAtOnce ? Math.min(chartsAtOnce, rest.length - most) + " of " : ""}${rest.length - most} more metrics</button>`}
    ${most > 0 && html`<button class="small" onClick=${() => setMost(0)}>Hide them</button>`}
    <${Steps} runs=${runs} />`;
}

function Curve({ chart, open }) {
  const data = useMemo(() => columns(chart.lines), [chart]);
  const bounds = chart.lines.length - 1; // the last two lines, if the chart has an interval
  const series = chart.lines.map((l, i) => ({ label: l.label, ...(chart.interval && i >= bounds - 1 ? { label: i === bounds ? "95 % up to" : "95 % from", colour: "--muted", options: { width: 0.5 } } : {}) }));
  return html`<${Chart} label=${visible(chart.title)} data=${data} series=${series} open=${open} bands=${chart.interval ? [{ series: [bounds + 1, bounds], fill: "--accent" }] : []} />`;
}

const rowsAtFirst = 20;

// Steps has the numbers that the curves draw, for those who read them.
function Steps({ runs }) {
  const [most, setMost] = useState(rowsAtFirst);
  const names = ["reward_mean", "pass_rate", "validation/pass_rate", "validation/reward_mean", "loss", "kl", "seconds/total"];
  const [run] = runs;
  const shown = names.filter((n) => run.items.some((m) => n in m.values));
  const items = run.items.slice(-most).reverse();
  const at = (m) => ["runs", run.run_id, "steps", String(m.step)];
  const cells = [{ name: "Step", class: "num", cell: (m) => html`<a href=${href(at(m))}>${count(m.step)}</a>` }, { name: "When", cell: (m) => html`<${Time} at=${m.time} />` }, ...shown.map((n) => ({ name: n, class: "num", cell: (m) => number(m.values[n]) }))];
  return html`<h2>Steps</h2>
    <p class="muted">A step, or a point of a curve, opens its groups.</p>
    <${Table} label="Steps of the run" columns=${cells} items=${items} id=${(m) => m.step} open=${(m) => go(at(m))} />
    ${run.items.length > most && html`<button class="small" onClick=${() => setMost(most * 5)}>Show more of ${count(run.items.length)} steps</button>`}`;
}
