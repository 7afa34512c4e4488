// What a share of the live sessions says about a candidate, and what was decided.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { get, post } from "../api.js";
import { emptied, useQuery } from "../hooks.js";
import { go, href } from "../route.js";
import { number, oneLine, visible } from "../lib/format.js";
import { Act, Empty, Failure, Loading, Status, Time } from "../components/basic.js";
import { Table } from "../components/table.js";

// Sessions are counted without an event of their own, so a rollout that ends is one.
const concerns = (e) => e.kind === "rollout" || (e.kind === "document" && (e.document || "").startsWith("release"));

const stable = 0; // the arms of evidence
const candidate = 1;

export function Releases() {
  const { data, error, reload } = useQuery((abort) => get("releases", {}, abort), [], concerns);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    <h1>Releases</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data.items.length === 0 ? html`<${Empty} title="Nothing was released yet."><p>Give a share of the live sessions new prompts or another model, and let what they earn decide:</p><pre>agl release propose --resources ID --share 0.1</pre></${Empty}>` : html`
      <${Table} label="Releases" columns=${columns} items=${data.items} id=${(r) => r.id} open=${(r) => go(["releases", r.id])} />`}`;
}

const columns = [
  { name: "Release", cell: (r) => html`<a class="mono" href=${href(["releases", r.id])}>${oneLine(r.id)}</a>` },
  { name: "State", cell: (r) => html`<${State} release=${r} />` },
  { name: "Candidate", cell: (r) => html`<${Version} version=${r.candidate} />` },
  { name: "Share", class: "num", cell: (r) => percent(r.share) },
  { name: "Sessions", class: "num", cell: (r) => `${r.evidence.sessions[candidate].toLocaleString()} of ${(r.evidence.sessions[stable] + r.evidence.sessions[candidate]).toLocaleString()}` },
  { name: "Difference of the reward", class: "num", cell: (r) => interval(r.now.reward) },
  { name: "Proposed", cell: (r) => html`<${Time} at=${r.create_time} />` },
  { name: "By", cell: (r) => oneLine(r.created_by, 40) },
];

export function Release({ id }) {
  const { data: r, error, reload } = useQuery((abort) => get("releases/" + encodeURIComponent(id), {}, abort), [id], concerns);
  if (!r) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const running = r.state === "canary";
  return html`
    <h1><span class="mono">${oneLine(r.id)}</span> <${State} release=${r} /></h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <p>${running ? visible(r.now.verdict.reason) : visible(r.decisions.at(-1).reason)}</p>
    <${Acts} release=${r} done=${reload} />
    <dl class="facts">
      <div><dt>Candidate</dt><dd><${Version} version=${r.candidate} /></dd></div>
      <div><dt>Stable</dt><dd><${Version} version=${r.stable} asked=${r.model} /></dd></div>
      <div><dt>Share of the candidate</dt><dd>${percent(r.share)}</dd></div>
      <div><dt>Sessions of the candidate</dt><dd>${r.evidence.sessions[candidate].toLocaleString()} of at least ${r.gates.min_sessions.toLocaleString()}</dd></div>
      <div><dt>Sessions in all</dt><dd>${(r.evidence.sessions[stable] + r.evidence.sessions[candidate]).toLocaleString()} of at most ${r.gates.max_sessions.toLocaleString()}</dd></div>
    </dl>
    ${r.suite && html`<${Suite} suite=${r.suite} />`}
    <h2>Evidence</h2>
    <p class="muted">A difference lies within its interval at all times at once with a probability of ${percent(1 - r.gates.alpha)}, so you may look whenever you like.</p>
    <${Table} label="Evidence" columns=${evidenceColumns} items=${evidence(r)} id=${(e) => e.metric} />
    <h2>Decisions</h2>
    <${Table} label="Decisions" columns=${decisionColumns} items=${r.decisions.map((d, i) => ({ ...d, i })).reverse()} id=${(d) => d.i} />`;
}

// Suite is what both versions earned on the same tasks before any session met the candidate.
function Suite({ suite: s }) {
  const rows = [{ metric: "reward", tasks: s.tasks, candidate: s.candidate, stable: s.stable, baseline: s.baseline, difference: s.difference, met: s.difference[1] < 0 ? "worse" : s.difference[0] > 0 ? "better" : "open" }];
  return html`
    <h2>Offline suite</h2>
    <p class="muted">Before any session: both versions on the same tasks, with intervals of 95 %. A candidate that is worse meets no user.</p>
    <${Table} label="Offline suite" columns=${suiteColumns} items=${rows} id=${(e) => e.metric} />`;
}

const suiteColumns = [
  { name: "Metric", cell: (e) => e.metric },
  { name: "Candidate", class: "num", cell: (e) => number(e.candidate) },
  { name: "Stable, the baseline", class: "num", cell: (e) => `${number(e.stable)} (${number(e.baseline[0])} to ${number(e.baseline[1])})` },
  { name: "Tasks", class: "num", cell: (e) => e.tasks.toLocaleString() },
  { name: "Wanted", cell: () => "not worse" },
  { name: "Difference", class: "num", cell: (e) => interval(e.difference) },
  { name: "Shown", cell: (e) => html`<${Status} value=${e.met} />` },
];

function Acts({ release: r, done }) {
  const [reason, setReason] = useState("");
  const running = r.state === "canary";
  const act = (name) => async () => {
    await post(`releases/${encodeURIComponent(r.id)}/${name}`, { reason: reason.trim() });
    setReason(emptied(reason));
    done();
  };
  if (r.state === "rolled_back") return html`<p class="muted">No new session gets the candidate. Propose it again to try it again.</p>`;
  return html`<form class="acts" onSubmit=${(e) => e.preventDefault()}>
    <label>Reason <input value=${reason} maxlength="1000" onInput=${(e) => setReason(e.target.value)} placeholder="kept with the decision" /></label>
    ${running && html`<${Act} run=${act("promote")} confirm="Promote? All new sessions get the candidate.">Promote</${Act}>`}
    <${Act} danger run=${act("rollback")} confirm="Roll back? No new session gets the candidate.">Roll back</${Act}>
    ${running && (r.frozen ? html`<${Act} run=${act("resume")}>Resume</${Act}>` : html`<${Act} run=${act("freeze")}>Freeze</${Act}>`)}
  </form>`;
}

const State = ({ release: r }) => html`<${Status} value=${r.state} />${r.frozen && r.state === "canary" && html` <small>frozen</small>`}`;

function Version({ version: v, asked = "" }) {
  const model = v.model || asked;
  if (!v.resources_id && !model) return html`<span class="muted">what sessions get without a release</span>`;
  return html`${v.resources_id && html`<a class="mono" href=${href(["resources"], { id: v.resources_id })}>${oneLine(v.resources_id)}</a>`} ${model && html`<span>model ${oneLine(model, 60)}</span>`}`;
}

const percent = (share) => number(100 * share) + " %";

const signed = (x) => (x > 0 ? "+" : "") + number(x);

const interval = (bounds) => (bounds ? `${signed(bounds[0])} to ${signed(bounds[1])}` : "–");

// evidence is a row for the reward and one for each guard. met says what the gates make
// of it.
function evidence(r) {
  const reward = r.evidence.reward;
  const rows = [{
    metric: "reward", sessions: reward.arms.map((a) => a.n), means: reward.arms.map((a) => a.mean), difference: r.now.reward, wanted: `more than ${number(r.gates.min_gain)}`,
    met: !r.now.reward ? "" : r.now.reward[0] > r.gates.min_gain ? "better" : r.now.reward[1] < 0 ? "worse" : "open",
  }];
  r.gates.guards.forEach((g, i) => {
    const now = r.now.guards[i];
    rows.push({
      metric: g.metric, sessions: now.sessions, means: now.means, difference: now.difference, wanted: `at most ${g.relative ? percent(g.tolerance) : number(g.tolerance)} more`,
      met: !now.difference ? "" : now.difference[0] > 0 ? "worse" : now.difference[1] < 0 ? "held" : "open",
    });
  });
  return rows;
}

const mean = (e, arm) => (e.sessions[arm] ? number(e.means[arm]) : "–");

const evidenceColumns = [
  { name: "Metric", cell: (e) => oneLine(e.metric, 60) },
  { name: "Candidate", class: "num", cell: (e) => mean(e, candidate) },
  { name: "Stable", class: "num", cell: (e) => mean(e, stable) },
  { name: "Sessions with it", class: "num", cell: (e) => `${e.sessions[candidate].toLocaleString()} + ${e.sessions[stable].toLocaleString()}` },
  { name: "Wanted", cell: (e) => e.wanted },
  { name: "Difference, less what is tolerated", class: "num", cell: (e) => interval(e.difference) },
  { name: "Shown", cell: (e) => e.met && html`<${Status} value=${e.met} />` },
];

const decisionColumns = [
  { name: "When", cell: (d) => html`<${Time} at=${d.time} />` },
  { name: "What", cell: (d) => d.action },
  { name: "By", cell: (d) => oneLine(d.by, 40) },
  { name: "Sessions", class: "num", cell: (d) => `${d.evidence.sessions[candidate].toLocaleString()} + ${d.evidence.sessions[stable].toLocaleString()}` },
  { name: "Reason", cell: (d) => oneLine(d.reason, 300) },
];
