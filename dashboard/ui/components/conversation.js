// An attempt as people read it: what was said, what was rewarded.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { count, number, oneLine, plural, seconds, visible } from "../lib/format.js";
import { href } from "../route.js";
import { Act, Text } from "./basic.js";
import { Tokens } from "./tokens.js";

const itemsAtFirst = 200;

// Conversation shows what lib/span.js conversation() returns of a rollout: of a long one how it begins and ends, until the reader asks for more.
// rate(span, value) keeps a judgement of one call.
export function Conversation({ rollout, items, onSpan, rate }) {
  const [most, setMost] = useState(itemsAtFirst);
  const shown = items.length > most ? [...items.slice(0, most / 2), null, ...items.slice(-most / 2)] : items;
  return html`<div class="conversation">${shown.map((item) => (item ? html`<${kinds[item.kind]} key=${item.span.span_id} rollout=${rollout} item=${item} onSpan=${onSpan} rate=${rate} />`
    : html`<p key="between"><button onClick=${() => setMost(most * 5)}>Show more of the ${count(items.length - most)} between</button></p>`))}</div>`;
}

function Call({ rollout, item, onSpan, rate }) {
  const [all, setAll] = useState(false);
  const hidden = all ? 0 : item.repeated;
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
    ${item.tools.length > 0 && html`<p class="tools">tools: ${oneLine(item.tools.join(", "), 2000)}</p>`}
    ${hidden > 0 && html`<button class="small" onClick=${() => setAll(true)}>${plural(hidden, "earlier message")}</button>`}
    ${item.prompt.slice(hidden).map((m, i) => html`<${Message} key=${i} message=${m} />`)}
    ${item.replies.map((m, i) => html`<${Message} key=${"r" + i} message=${m} tokens=${i === 0 ? item.tokens : []} trained=${item.trained} reply />`)}
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

const Exception = ({ item }) => html`<article class="message bad"><h4>${oneLine(item.type)}</h4><${Text} value=${item.text} />${item.trace && html`<details><summary>stack trace</summary><${Text} class="code" value=${item.trace} /></details>`}</article>`;

const kinds = { call: Call, reward: Reward, note: Note, exception: Exception };
