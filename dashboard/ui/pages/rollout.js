// One rollout: what its agent did in each attempt, and how it was rewarded.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { del, find, get, post, querySpans, spans as readSpans } from "../api.js";
import { lostSince, onEvent, tell } from "../live.js";
import { emptied, passing, pause, retryAfter, still, useQuery } from "../hooks.js";
import { go, href, route, setParams } from "../route.js";
import { count, dateTime, number, oneLine, plural, seconds, visible } from "../lib/format.js";
import { calls, entries, exception, isException, outline, took as spanTook } from "../lib/span.js";
import { Act, Copy, download, Empty, Failure, Guard, JSONText, Loading, Status, Text, Time } from "../components/basic.js";
import { Conversation, Exception } from "../components/conversation.js";
import { Timeline } from "../components/timeline.js";
import { notLearned, outcome } from "../lib/group.js";

const tabs = [["conversation", "Conversation"], ["timeline", "Timeline"], ["raw", "Raw"]];
const ended = ["succeeded", "failed", "cancelled"];

export function Rollout({ id }) {
  const { data, error, reload } = useQuery(
    async (abort) => {
      const path = "rollouts/" + encodeURIComponent(id);
      const [rollout, attempts] = await Promise.all([find(path, abort), get(path + "/attempts", {}, abort)]);
      return { rollout, attempts: attempts.items };
    },
    [id], (e) => e.rollout_id === id);
  if (error?.status === 410) return html`<${Gone} id=${id} />`;
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const { rollout, attempts } = data;
  const chosen = attempts.find((a) => a.attempt_id === route.value.params.attempt) || attempts.at(-1);
  return html`
    <h1><span class="mono">${oneLine(rollout.rollout_id)}</span> <${Status} value=${rollout.status} /></h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <${Facts} rollout=${rollout} attempt=${chosen} />
    <${Actions} rollout=${rollout} rated=${chosen && chosen === attempts.at(-1)} />
    ${attempts.length > 1 && html`<nav class="tabs" aria-label="Attempts">${attempts.map(
      (a) => html`<button key=${a.attempt_id} aria-pressed=${a === chosen} onClick=${() => setParams({ attempt: a.attempt_id, span: "" })}>attempt ${a.sequence_id} <${Status} value=${a.status} /></button>`)}</nav>`}
    ${chosen ? html`<${Attempt} key=${chosen.attempt_id} rollout=${rollout} attempt=${chosen} />` : html`<${Empty} title="No attempt yet."><p>The rollout waits in the queue for a runner.</p><pre>agl runner -- python agent.py</pre></${Empty}>`}`;
}

const Gone = ({ id }) => html`<${Empty} title="There is no rollout ${visible(id)}."><p>It may have been deleted, or belong to another store.</p><a href=${href(["rollouts"])}>To all rollouts</a></${Empty}>`;

// took says how long an attempt was under way. An earlier one has an end of its own, and a rollout in the queue has not begun.
function took(rollout, attempt) {
  const end = attempt?.end_time ?? rollout.end_time;
  if (end) return seconds(end - (attempt?.start_time ?? rollout.start_time));
  return attempt ? "running" : "–";
}

function Facts({ rollout, attempt }) {
  const how = outcome(attempt);
  const facts = [
    ["Mode", rollout.mode || "–"],
    ["Started", html`<${Time} at=${rollout.start_time} /> <small>${dateTime(rollout.start_time)}</small>`],
    ["Took", took(rollout, attempt)],
    ["Worker", oneLine(attempt?.worker_id || "–")],
    ["Resources", rollout.resources_id ? html`<a class="mono" href=${href(["resources"], { id: rollout.resources_id })}>${oneLine(rollout.resources_id)}</a>` : "latest"],
    ...(how.kind ? [["Outcome", visible(how.kind)]] : []),
  ];
  return html`
    <dl class="facts">${facts.map(([k, v]) => html`<div key=${k}><dt>${k}</dt><dd>${v}</dd></div>`)}</dl>
    ${how.message && html`<div class="notice bad"><${Text} class="said" value=${how.message} /></div>`}
    ${notLearned(rollout) && html`<p class="notice" role="note">Not learned from: ${visible(notLearned(rollout))}. <a href=${href(["rollouts"], { label: "dropped=" + rollout.metadata.dropped })}>All for this reason</a></p>`}
    <details class="input" open><summary>Input</summary>${typeof rollout.input === "string" ? html`<${Text} class="said" value=${rollout.input} />` : html`<${JSONText} value=${rollout.input} />`}</details>
    ${Object.keys(rollout.metadata || {}).length > 0 && html`<details><summary>Metadata</summary><${JSONText} value=${rollout.metadata} /></details>`}`;
}

function Actions({ rollout, rated }) {
  const path = "rollouts/" + encodeURIComponent(rollout.rollout_id);
  const over = ended.includes(rollout.status);
  return html`<div class="actions">
    ${!over && html`<${Act} run=${() => post(path + "/cancel")} confirm="Cancel this rollout?">Cancel</${Act}>`}
    ${over && html`<${Act} run=${() => post(path, { status: "requeuing" })} confirm="Run this rollout again?">Retry</${Act}>`}
    ${over && html`<${Act} danger run=${async () => (await del(path), go(["rollouts"]))} confirm="Delete this rollout with its spans? This cannot be undone.">Delete</${Act}>`}
    ${rated && html`<${Rate} rollout=${rollout} />`}
  </div>`;
}

// rate keeps a person's judgement of the latest attempt, or of the call in span, as a reward of the source human. The store tells
// nobody of rewards of a call.
async function rate(rollout, value, span) {
  await post("rollouts/" + encodeURIComponent(rollout.rollout_id) + "/rewards", { value, source: "human", span });
  tell({ kind: "attempt", rollout_id: rollout.rollout_id });
}

function Rate({ rollout }) {
  const [value, setValue] = useState("");
  const valid = value !== "" && Number.isFinite(Number(value));
  return html`<span class="rate" role="group" aria-label="Rate this attempt">
    <${Act} run=${() => rate(rollout, 1)}>Good</${Act}>
    <${Act} run=${() => rate(rollout, 0)}>Bad</${Act}>
    <label class="hidden" for="rating">A number</label>
    <input id="rating" type="number" step="any" placeholder="reward" value=${value} onInput=${(e) => setValue(e.target.value)} />
    <${Act} disabled=${!valid} run=${async () => (await rate(rollout, Number(value)), setValue(emptied(value)))}>Rate</${Act}>
  </span>`;
}

// readOn yields {all, total} page by page, where all are the known spans of an attempt and those that have come after them, or all anew
// when one has come before the last known.
async function* readOn(known, rolloutID, attemptID, abort, names) {
  const last = known.at(-1);
  if (last) {
    const all = known.slice(0, -1);
    const from = all.length;
    for await (const { items, total } of readSpans(rolloutID, attemptID, abort, { names, from })) {
      if (all.length === from && items[0]?.span_id !== last.span_id) break;
      all.push(...items);
      yield { all, total };
      if (all.length >= total) return;
    }
  }
  const all = [];
  for await (const { items, total } of readSpans(rolloutID, attemptID, abort, { names })) {
    all.push(...items);
    yield { all, total };
  }
}

// useSpans reads an attempt's spans page by page, and then what comes later: with the attributes in names, or all.
function useSpans(rollout, attempt, names) {
  const known = useRef([]);
  const rolloutID = rollout.rollout_id;
  const over = ended.includes(rollout.status);
  const [state, setState] = useState({ spans: [], total: 0, done: false, error: null });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let wanted = false;
    let busy = false;
    let looking = false;
    let began = 0;
    let mine = null; // ends the latest reading
    let next = 0; // when it is looked again
    const read = async () => {
      if (busy) return;
      busy = true;
      began = performance.now();
      mine = new AbortController();
      wanted = false;
      let after = 0.7; // seconds
      try {
        let all = [];
        let first = true;
        for await (const page of readOn(known.current, rolloutID, attempt.attempt_id, AbortSignal.any([abort.signal, mine.signal]), names)) {
          const { total } = page;
          all = page.all;
          read.total = total;
          await still();
          setState((s) => (first || all.length > s.spans.length ? { spans: s.done && all.length < s.spans.length ? s.spans : [...all], total, done: s.done, error: null } : s));
          first = false;
        }
        known.current = all;
        setState((s) => ({ ...s, spans: all, done: true }));
      } catch (error) {
        if (abort.signal.aborted) return;
        if (error.name !== "AbortError") setState((s) => ({ ...s, error }));
        wanted ||= passing(error);
        after = retryAfter;
      }
      busy = false;
      next = performance.now() + pause * (performance.now() - began);
      if (wanted && !abort.signal.aborted) timer = setTimeout(read, 1000 * after);
    };
    // Before its rollout has ended no event tells of spans. They, late rewards and what a reset leaves out are found by their number.
    let ticks = 0;
    let untold = false;
    const look = async () => {
      looking = true; // those that wait for ever would keep the others, as in the overview
      const patience = AbortSignal.any([abort.signal, AbortSignal.timeout(10_000)]);
      const { total } = await get("spans", { rollout_id: rolloutID, attempt_id: attempt.attempt_id, limit: 1 }, patience).catch(() => ({}));
      looking = false;
      if (total !== read.total && !busy) read();
    };
    const poll = setInterval(() => {
      if (document.hidden || busy || looking || performance.now() < next || !(untold || attempt.end_time === null || (!over && ++ticks % 5 === 0))) return;
      untold = false;
      look();
    }, 1000);
    const off = onEvent((e) => {
      if (e.opened && busy && lostSince(began)) mine.abort();
      if (e.kind === "reset") untold = true;
      if (e.rollout_id !== rolloutID) return;
      if (busy) wanted = true;
      else read();
    });
    read();
    return () => {
      off();
      clearTimeout(timer);
      clearInterval(poll);
      abort.abort();
    };
  }, [rolloutID, over, attempt.attempt_id, attempt.end_time]);
  return state;
}

function Attempt({ rollout, attempt }) {
  const { spans, total, done, error } = useSpans(rollout, attempt, outline);
  const { tab: asked, span: selected } = route.value.params;
  const tab = tabs.some(([name]) => name === asked) ? asked : tabs[0][0];
  const items = useMemo(() => (tab === "conversation" ? entries(spans) : []), [spans, tab]);
  const span = selected && spans.find((s) => s.span_id === selected);
  const read = (params, abort) => querySpans(rollout.rollout_id, attempt.attempt_id, params, abort);
  const onSpan = (s) => setParams({ span: s.span_id === selected ? "" : s.span_id });
  const reward = attempt.reward?.value ?? null;
  return html`
    <div class="tabs" role="tablist" aria-label="Views of the attempt">
      ${tabs.map(([name, label]) => html`<button key=${name} role="tab" aria-selected=${tab === name} onClick=${() => setParams({ tab: name })}>${label}</button>`)}
      <span class="tab-facts">${plural(calls(spans).length, "call")} · ${spans.length < total ? count(spans.length) + " of " : ""}${plural(total, "span")}${reward !== null ? html` · reward <b>${number(reward)}</b>` : ""}</span>
    </div>
    ${error && html`<${Failure} error=${error} />`}
    ${!done && spans.length === 0 ? !error && html`<${Loading} />` : spans.length === 0 ? html`<${Empty} title="No spans."><p>The agent has made no model call and emitted nothing. Calls are recorded when the agent uses the address of its model that agl gives it.</p></${Empty}>` : html`
    <div class="with-side ${span ? "open" : ""}">
      <${Guard} key=${tab}><div>
        ${tab === "conversation" && (items.length ? html`<${Conversation} rollout=${rollout} spans=${spans} items=${items} read=${read} onSpan=${onSpan} rate=${(span, value) => rate(rollout, value, span.span_id)} />` : html`<${Empty} title="No conversation."><p>None of the spans is a model call or a reward; the timeline shows all.</p></${Empty}>`)}
        ${tab === "timeline" && html`<${Timeline} spans=${spans} selected=${selected} onSpan=${onSpan} />`}
        ${tab === "raw" && html`<${Raw} rollout=${rollout} attempt=${attempt} />`}
      </div></${Guard}>
      ${span && html`<${SpanDetails} key=${span.span_id} outline=${span} read=${read} close=${() => setParams({ span: "" })} />`}
    </div>`}`;
}

function Raw({ rollout, attempt }) {
  const { spans, total, done, error } = useSpans(rollout, attempt);
  const text = useMemo(() => (done ? JSON.stringify({ rollout, attempt, spans }, null, 2) : ""), [rollout, attempt, spans, done]);
  if (!done) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />${total > 0 && html`<p class="muted">${count(spans.length)} of ${plural(total, "span")}</p>`}`;
  return html`${error && html`<${Failure} error=${error} />`}<div class="actions"><${Copy} text=${text} /><button class="small" onClick=${() => download(rollout.rollout_id + ".json", "application/json", text)}>Download</button></div><${Text} class="code" value=${text} />`;
}

function SpanDetails({ outline: span, read, close }) {
  const { data: whole, error, reload } = useQuery(async (abort) => (await read({ id: span.span_id, limit: 1 }, abort)).items[0] ?? span, [span.span_id]);
  return html`<aside class="side" aria-label="Span">
    <header><h2>${oneLine(span.name)}</h2><button class="small" onClick=${close} aria-label="Close">✕</button></header>
    <dl class="facts">
      <div><dt>Sequence</dt><dd>${String(span.sequence_id)}</dd></div>
      <div><dt>Took</dt><dd>${seconds(spanTook(span))}</dd></div>
      <div><dt>Status</dt><dd>${span.status?.status_code}</dd></div>
      <div><dt>Span</dt><dd class="mono">${span.span_id}</dd></div>
    </dl>
    ${span.status?.description && html`<${Text} class="bad" value=${span.status.description} />`}
    ${span.events?.length > 0 && html`<${Events} span=${span} />`}
    <h3>Attributes</h3>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}${!whole && !error && html`<${Loading} />`}
    <${Attributes} of=${whole?.attributes} />
    ${whole && html`<div class="actions"><${Copy} text=${JSON.stringify(whole, null, 2)} label="Copy JSON" /></div>`}
  </aside>`;
}

const Attributes = ({ of }) => html`<table class="attributes"><tbody>${Object.entries(of || {}).map(([k, v]) => html`<tr key=${k}><th scope="row">${visible(k)}</th><td><${Text} class="value" value=${typeof v === "string" ? v : JSON.stringify(v)} /></td></tr>`)}</tbody></table>`;

const eventsAtFirst = 50;
const saidOfException = /^exception[.](type|message|stacktrace)$/;

// Events shows what happened during a span, and when. Exceptions come first: they are usually the last events, and only the first 50 are shown.
function Events({ span }) {
  const [most, setMost] = useState(eventsAtFirst);
  const raised = span.events.filter(isException);
  const events = [...raised, ...span.events.filter((e) => !isException(e))];
  const after = (e) => (e.timestamp === null || span.start_time === null ? "" : "after " + seconds(e.timestamp - span.start_time));
  const rest = (e, i) => (i < raised.length ? Object.fromEntries(Object.entries(e.attributes).filter(([k]) => !saidOfException.test(k))) : e.attributes);
  return html`<h3>Events</h3>
    ${events.slice(0, most).map((e, i) => html`<section key=${i}><h4>${oneLine(e.name)} <small>${after(e)}</small></h4>
      ${i < raised.length && html`<${Exception} item=${exception(e.attributes)} />`}<${Attributes} of=${rest(e, i)} /></section>`)}
    ${events.length > most && html`<button class="small" onClick=${() => setMost(most * 5)}>Show more of ${plural(events.length, "event")}</button>`}`;
}
