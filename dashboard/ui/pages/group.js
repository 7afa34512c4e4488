// A group: rollouts of one task side by side, what each earned, and where they part.
import { useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { querySpans, spans as readSpans } from "../api.js";
import { useQuery } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { advantages } from "../lib/trained.js";
import { advantage, outcome, parting, score, summary, tokens, transcript } from "../lib/group.js";
import { count, number, oneLine, plural, seconds, visible } from "../lib/format.js";
import { added } from "../lib/messages.js";
import { calls, outline } from "../lib/span.js";
import { Empty, Failure, JSONText, Loading, Status, Text } from "../components/basic.js";
import { Message } from "../components/conversation.js";
import { Table } from "../components/table.js";

const sideBySide = 4; // columns at first
const mostSpans = 5000; // of one sibling

export function Group({ run, step, all, name }) {
  const at = all.findIndex((g) => g.key === name);
  const path = (g) => ["runs", run, "steps", String(step), "groups", g.key];
  if (at < 0) return html`<${Empty} title="There is no group ${visible(name)} in this step."><a href=${href(["runs", run, "steps", String(step)])}>To the step</a></${Empty}>`;
  const { members } = all[at];
  const group = summary(members);
  return html`
    <h1><a class="mono" href=${href(["runs", run])}>${visible(run)}</a> <a href=${href(["runs", run, "steps", String(step)])}>step ${count(step)}</a> group ${oneLine(name, 60)}</h1>
    <nav class="pages" aria-label="Groups">
      ${at > 0 && html`<a href=${href(path(all[at - 1]))}>Group before</a>`}
      ${at < all.length - 1 && html`<a href=${href(path(all[at + 1]))}>Group after</a>`}
      <span>${count(at + 1)} of ${count(all.length)}</span>
    </nav>
    <details class="input" open><summary>Task</summary>${typeof members[0].input === "string" ? html`<${Text} value=${members[0].input} />` : html`<${JSONText} value=${members[0].input} />`}</details>
    <${Verdict} group=${group} members=${members} />
    <${Siblings} key=${name} members=${members} group=${group} />`;
}

function Verdict({ group, members }) {
  const n = group.rewards.length;
  if (group.waiting) return html`<p class="notice">${plural(group.waiting, "rollout")} of ${count(members.length)} ${group.waiting === 1 ? "has" : "have"} not finished.</p>`;
  if (group.dropped) return html`<p class="notice bad" role="note">The group has no advantages and is not trained on: ${group.dropped}.</p>`;
  return html`<p>Mean reward ${number(group.mean)}, standard deviation ${number(group.sd)}, of ${plural(n, "rollout")}${n < members.length ? ` that count, of ${count(members.length)}` : ""}.</p>`;
}

// learn reads into known what was said in each of the attempts, again of those only that have got spans since, and into messages what
// each of an attempt's calls has added.
async function learn(members, { known, messages }, abort) {
  const one = async (r) => {
    const at = r.attempt?.attempt_id;
    const before = known[r.rollout_id];
    const query = (params) => querySpans(r.rollout_id, at, params, abort);
    if (at && before?.at === at && before.total === (await query({ limit: 1, names: outline })).total) return;
    const spans = [];
    let total = 0;
    if (at) {
      for await (const page of readSpans(r.rollout_id, at, abort, { names: outline })) {
        spans.push(...page.items);
        total = page.total;
        if (spans.length >= mostSpans) break;
      }
    }
    const of = calls(spans);
    const said = (messages[at] ??= new Map());
    await Array.fromAsync(added(spans, of, new Set(of.map((s) => s.span_id)), said, query));
    known[r.rollout_id] = { at, total, messages: transcript(spans, said), tokens: tokens(spans), advantages: advantages(spans) };
  };
  await Promise.all(members.map(one));
}

// useTranscripts has what was said in each of the attempts. What is known stays until something newer is.
function useTranscripts(members) {
  const { current: read } = useRef({ known: {}, messages: {} });
  const of = members.map((r) => r.rollout_id + "/" + (r.attempt?.attempt_id || "") + r.status).join();
  const { error } = useQuery((abort) => learn(members, read, abort), [of], (e) => members.some((r) => r.rollout_id === e.rollout_id));
  return { said: read.known, error };
}

// worth shows an advantage: of calls that have different ones, the least and the most.
const worth = (a) => (!a ? "–" : a.high === undefined || number(a.high) === number(a.value) ? number(a.value) : `${number(a.value)} to ${number(a.high)}`);

function Siblings({ members, group }) {
  const shown = Math.max(sideBySide, Number(route.value.params.shown) || 0);
  const { said, error } = useTranscripts(members.slice(0, Math.max(shown, 64)));
  const rows = members.map((r, i) => ({ r, i, score: score(r), advantage: advantage(r, group, said[r.rollout_id]?.advantages), said: said[r.rollout_id] }));
  const recorded = rows.some((x) => x.advantage?.recorded);
  const computed = rows.some((x) => x.advantage && !x.advantage.recorded);
  const columns = [
    { name: "Sibling", cell: (x) => html`<a class="mono" href=${href(["rollouts", x.r.rollout_id])}>${oneLine(x.r.rollout_id)}</a>` },
    { name: "Reward", class: "num", cell: (x) => ("reward" in x.score ? number(x.score.reward) : html`<span class="muted">does not count: ${visible(x.score.why)}</span>`) },
    { name: "Advantage", class: "num", cell: (x) => worth(x.advantage) },
    { name: "Prompt tokens", class: "num", cell: (x) => count(x.said?.tokens?.prompt) },
    { name: "Reply tokens", class: "num", cell: (x) => count(x.said?.tokens?.reply) },
    { name: "Took", class: "num", cell: (x) => (x.r.end_time ? seconds(x.r.end_time - (x.r.attempt?.start_time ?? x.r.start_time)) : "") },
    { name: "Status", cell: (x) => html`<${Status} value=${x.r.status} />` },
    { name: "Outcome", cell: (x) => visible(outcome(x.r.attempt).kind) },
  ];
  return html`
    <h2>Siblings</h2>
    ${error && html`<${Failure} error=${error} />`}
    <${Table} label="Siblings" columns=${columns} items=${rows} id=${(x) => x.r.rollout_id} open=${(x) => go(["rollouts", x.r.rollout_id])} />
    ${computed && html`<p class="muted">Advantages are computed here from the rewards as <code>grpo</code> does by default: (reward − mean) / (standard deviation + 0.0001). A run with another baseline used others.</p>`}
    ${recorded && html`<p class="muted">Advantages are those that the algorithm wrote down.</p>`}
    <${SideBySide} rows=${rows.slice(0, shown)} />
    ${rows.length > shown && html`<button class="small" onClick=${() => setParams({ shown: shown + sideBySide })}>Show ${Math.min(sideBySide, rows.length - shown)} more of ${count(rows.length)} siblings</button>`}`;
}

// SideBySide shows what the siblings have in common once, and each one's own messages in a column.
function SideBySide({ rows }) {
  const [all, setAll] = useState(false);
  const read = rows.every((x) => x.said);
  const at = useMemo(() => (read ? parting(rows.map((x) => x.said.messages)) : 0), rows.map((x) => x.said));
  if (!read) return html`<${Loading} />`;
  if (rows.every((x) => x.said.messages.length === 0)) return html`<p class="muted">No calls of a model were recorded.</p>`;
  const common = rows.find((x) => x.said.messages.length > 0).said.messages.slice(0, at);
  const same = rows.every((x) => x.said.messages.length === at);
  return html`
    <h2>What they said</h2>
    ${common.length > 0 && html`<details open=${all} onToggle=${(e) => setAll(e.currentTarget.open)}><summary>${plural(common.length, "message")} in common</summary>${all && common.map((m, i) => html`<${Message} key=${i} message=${m} />`)}</details>`}
    <p>${same ? "They said the same." : html`They part at message ${count(at + 1)}.`}</p>
    ${!same && html`<div class="siblings" tabindex="0" role="region" aria-label="Siblings side by side">${rows.map((x) => html`<${Column} key=${x.r.rollout_id} row=${x} at=${at} />`)}</div>`}`;
}

function Column({ row, at }) {
  const own = row.said.messages.slice(at);
  return html`<section class="sibling" aria-label="Sibling ${row.i + 1}">
    <h3><a class="mono" href=${href(["rollouts", row.r.rollout_id])}>${oneLine(row.r.rollout_id)}</a></h3>
    <p class="muted">reward ${"reward" in row.score ? number(row.score.reward) : "none"}${row.advantage ? ", advantage " + worth(row.advantage) : ""}</p>
    ${own.length === 0 && html`<p class="muted">${row.said.messages.length ? "It ends here." : "No calls were recorded."}</p>`}
    ${own.map((m, i) => (i === 0 ? html`<div class="parts" key=${i}><${Message} message=${m} tokens=${m.tokens} trained=${m.trained} reply=${m.reply} /></div>` : html`<${Message} key=${i} message=${m} tokens=${m.tokens} trained=${m.trained} reply=${m.reply} />`))}
  </section>`;
}
