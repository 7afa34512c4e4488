// An attempt as people read it: what was said, what was rewarded.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { count, number, oneLine, plural, seconds, visible } from "../lib/format.js";
import { calls } from "../lib/span.js";
import { added, earlier } from "../lib/messages.js";
import { passing, retryAfter, still } from "../hooks.js";
import { lostSince, onEvent } from "../live.js";
import { href } from "../route.js";
import { Act, Failure, Text } from "./basic.js";
import { Tokens } from "./tokens.js";

const itemsAtFirst = 200;

// useMessages reads by read(params, abort) what those calls have said that are shown, and returns it by the ids of their spans.
function useMessages(spans, shown, read) {
  const { current: known } = useRef(new Map());
  const [, draw] = useState(0);
  const [error, setError] = useState(null);
  const latest = useRef({});
  const wanted = new Set(shown.filter((item) => item?.kind === "call").map((item) => item.span.span_id));
  latest.current = { ...latest.current, spans, wanted, read };
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let busy = false;
    let began = 0;
    let mine = null; // ends the latest loading
    const load = async () => {
      if (busy) return;
      busy = true;
      began = performance.now();
      mine = new AbortController();
      const signal = AbortSignal.any([abort.signal, mine.signal]);
      try {
        for (let wanted; wanted !== latest.current.wanted && !abort.signal.aborted;) {
          const { spans, read } = latest.current;
          wanted = latest.current.wanted;
          for await (const _ of added(spans, calls(spans), wanted, known, (params) => read(params, signal))) {
            await still();
            if (abort.signal.aborted) return;
            draw((n) => n + 1);
          }
        }
        setError(null);
      } catch (err) {
        if (abort.signal.aborted) return;
        if (err.name !== "AbortError") setError(err);
        if (passing(err)) timer = setTimeout(load, 1000 * retryAfter);
      }
      busy = false;
    };
    latest.current.load = load;
    const off = onEvent((e) => e.opened && busy && lostSince(began) && mine.abort());
    return () => {
      off();
      clearTimeout(timer);
      abort.abort();
    };
  }, []);
  useEffect(() => {
    latest.current.load();
  }, [[...wanted].join()]);
  return { known, error };
}

// Conversation shows the entries of an attempt's spans, items: of a long one how it begins and ends, until the reader asks for more.
// read(params, abort) queries the spans; rate(span, value) keeps a judgement of one call.
export function Conversation({ rollout, spans, items, read, onSpan, rate }) {
  const [most, setMost] = useState(itemsAtFirst);
  const shown = items.length > most ? [...items.slice(0, most / 2), null, ...items.slice(-most / 2)] : items;
  const { known, error } = useMessages(spans, shown, read);
  return html`${error && html`<${Failure} error=${error} />`}<div class="conversation">${shown.map((item) => (item ? html`<${kinds[item.kind]} key=${item.kind + item.span.span_id} rollout=${rollout} item=${item} said=${known.get(item.span.span_id)} read=${read} onSpan=${onSpan} rate=${rate} />`
    : html`<p key="between"><button onClick=${() => setMost(most * 5)}>Show more of the ${count(items.length - most)} between</button></p>`))}</div>`;
}

function Call({ rollout, item, said, read, onSpan, rate }) {
  const [before, setBefore] = useState(null);
  return html`<section class="call" aria-label="Model call">
    <header>
      <button class="link" onClick=${() => onSpan(item.span)}>call ${item.span.sequence_id}</button>
      <span>${oneLine(item.model)}</span>
      ${item.version && item.version !== item.model && html`<span>version ${oneLine(item.version)}</span>`}
      <span>${count(item.promptTokens)} → ${count(item.replyTokens)} tokens</span>
      <span>${seconds(item.seconds)}</span>
      ${item.trained && html`<${Trained} rollout=${rollout} of=${item.trained} />`}
      ${item.failed && html`<span class="status status-failed">failed</span>`}
      <span class="rate" role="group" aria-label="Rate call ${item.span.sequence_id}"><${Act} small run=${() => rate(item.span, 1)}>Good</${Act}><${Act} small run=${() => rate(item.span, 0)}>Bad</${Act}></span>
    </header>
    ${!said && html`<p class="loading">Loading…</p>`}
    ${said?.tools.length > 0 && html`<p class="tools">tools: ${oneLine(said.tools.join(", "), 2000)}</p>`}
    ${said?.repeated > 0 && !before && html`<${Act} small run=${async () => setBefore(await earlier(item.span, said.repeated, read))}>${plural(said.repeated, "earlier message")}</${Act}>`}
    ${before?.map((m, i) => html`<${Message} key=${"b" + i} message=${m} />`)}
    ${said?.prompt.map((m, i) => html`<${Message} key=${i} message=${m} />`)}
    ${said?.replies.map((m, i) => html`<${Message} key=${"r" + i} message=${m} tokens=${i === 0 ? said.tokens : []} trained=${item.trained} reply />`)}
    ${item.failed && item.error && html`<${Text} class="bad" value=${item.error} />`}
  </section>`;
}

// Trained says which step was trained on a call. It leads to the step if that lists the rollout, otherwise to the run: the rollouts of a round
// of sft, and those of users, belong to no step.
function Trained({ rollout, of }) {
  const listed = rollout.metadata?.run === of.run && Number(rollout.metadata.step) === of.step;
  const to = ["runs", of.run, ...(listed ? ["steps", String(of.step)] : [])];
  return html`<span>${of.run && of.step !== null ? html`trained on in <a href=${href(to)}>step ${count(of.step)}</a>` : "trained on"}${of.role && ", role " + visible(of.role)}${of.advantage !== null && html`, advantage <b>${number(of.advantage)}</b>`}</span>`;
}

// Message shows one message; the tokens of a reply are coloured on demand.
export function Message({ message, tokens = [], trained, reply = false }) {
  const [coloured, setColoured] = useState(false);
  return html`<article class="message role-${message.role.replace(/[^a-z]/gi, "")} ${reply ? "reply" : ""}">
    <h4>${oneLine(message.role)}${message.toolCallID && html` <small>${oneLine(message.toolCallID)}</small>`}
      ${tokens.length > 0 && html`<button class="small" aria-pressed=${coloured} onClick=${() => setColoured(!coloured)}>tokens</button>`}
      ${message.finish && message.finish !== "stop" && html`<small>ended by ${oneLine(message.finish)}</small>`}</h4>
    ${message.reasoning && html`<details><summary>reasoning</summary><${Text} value=${message.reasoning} /></details>`}
    ${coloured ? html`<${Tokens} tokens=${tokens} trained=${trained} />` : message.text && html`<${Text} value=${message.text} />`}
    ${message.images.map((url, i) => html`<${Image} key=${i} url=${url} />`)}
    ${message.toolCalls.map((c, i) => html`<div class="tool-call" key=${i}><code>${oneLine(c.name)}</code><${Text} class="code" value=${typeof c.arguments === "string" ? c.arguments : JSON.stringify(c.arguments)} /></div>`)}
  </article>`;
}

// Image shows an image that the message holds. One that is elsewhere is not fetched:
// that would tell its host who looks at this page.
const Image = ({ url }) =>
  /^data:image\/(png|jpeg|gif|webp);base64,/.test(url) ? html`<img class="picture" src=${url} alt="image in the message" />` : html`<p class="muted">image at ${visible(url.slice(0, 300))}</p>`;

const Reward = ({ item, onSpan }) => html`<div class="reward"><button class="link" onClick=${() => onSpan(item.span)}>reward</button>
  ${item.reward.map((r) => html` <b>${number(r.value)}</b>${item.reward.length > 1 || r.name !== "primary" ? " " + oneLine(r.name) : ""}`)}${item.of && html` <small>of call ${item.of.sequence_id}</small>`}${item.source && html` <small>by ${oneLine(item.source)}</small>`}${item.why && html`<${Text} value=${item.why} />`}</div>`;

const Note = ({ item }) => html`<article class="message note"><h4>message</h4><${Text} value=${item.text} /></article>`;

export const Exception = ({ item, onSpan }) => html`<article class="message bad"><h4>${oneLine(item.type)}${onSpan && html`<button class="link" onClick=${() => onSpan(item.span)}>${oneLine(item.span.name, 80)}</button>`}</h4><${Text} value=${item.text} />${item.trace && html`<details><summary>stack trace</summary><${Text} class="code" value=${item.trace} /></details>`}</article>`;

const kinds = { call: Call, reward: Reward, note: Note, exception: Exception };
