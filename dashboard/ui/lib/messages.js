// What each call of a conversation adds. A call repeats all messages before it, so whole calls grow with the square of their number: what is
// known already is not read again.
import { chat, prompt, same } from "./span.js";

const callsAtOnce = 5; // of a long conversation in one request
const messagesAtOnce = 60; // in one request, which may name a hundred attributes
const short = 20; // messages of a prompt that is compared as a whole

const range = (from, n) => Array.from({ length: n }, (_, i) => from + i);
const messageOf = (i) => `gen_ai.prompt.${i}.*`;
const toolOf = (i) => `gen_ai.request.functions.${i}.name`;
const said = ["gen_ai.completion.*", "logprobs.content"];
const wholeCall = [...said, "gen_ai.prompt.*", "gen_ai.request.functions.*"];

// added reads into known, by the ids of their spans, what the wanted ones among calls add to the call before: {prompt, repeated, replies, tools,
// tokens, end}, where end is the number of messages of the whole prompt. It yields whenever some have come. spans are all of the attempt, and
// read(params) queries them, as querySpans does. Of a long prompt that goes on, some messages are compared with those of the call before.
export async function* added(spans, calls, wanted, known, read) {
  const byName = calls.every((c) => c.name === "litellm_request");
  const list = byName ? calls : spans; // what a query of this name returns
  const place = new Map(list.map((s, i) => [s.span_id, i]));
  const missing = (i) => i < calls.length && wanted.has(calls[i].span_id) && !known.has(calls[i].span_id);
  let size = callsAtOnce;
  for (let at = 0; at < calls.length;) {
    if (!missing(at)) {
      at++;
      continue;
    }
    const before = calls[at - 1];
    const end = before ? (known.get(before.span_id)?.end ?? (await length(before, read))) : 0;
    const from = end < short ? 0 : end - 2;
    const first = place.get((before ?? calls[at]).span_id);
    const chunk = [];
    while (chunk.length < size && missing(at + chunk.length) && place.get(calls[at + chunk.length].span_id) < first + 1000) chunk.push(calls[at + chunk.length]);
    if (!chunk.length) chunk.push(calls[at]); // far from the call before, which is not there to compare with then
    const limit = Math.min(1000, place.get(chunk.at(-1).span_id) - first + 1);
    const compared = from ? [0, 1, end >> 1] : [];
    const found = await readFrom({ ...(byName ? { name: "litellm_request" } : {}), offset: first, limit }, compared, from, new Set((before ? [before, ...chunk] : chunk).map((s) => s.span_id)), read);
    let last = before && { end, ...found.get(before.span_id) };
    size = Math.min(size * 2, from ? callsAtOnce : 4 * callsAtOnce);
    for (const call of chunk) {
      let its = found.get(call.span_id);
      if (!its && call !== chunk[0]) break; // it may go on from the one before it
      let repeated = its && last?.prompt ? common(last, its.prompt, (i) => i >= from || compared.includes(i)) : 0;
      const other = !its || (from > 0 && repeated === 0); // another conversation, or an edited one: all of it is shown
      if (other) {
        const { items: [whole] } = await read({ id: call.span_id, limit: 1, names: wholeCall });
        its = described(whole?.attributes || {});
        repeated = 0;
      }
      const { attributes, end, prompt } = its;
      const { replies, tools, tokens } = chat({ ...call, attributes });
      known.set(call.span_id, { prompt: [...prompt].filter(([i]) => i >= repeated).map(([, m]) => m), repeated, replies, tools, tokens, end });
      last = its;
      at++;
      if (!other) continue;
      size = 1; // what goes on from here begins elsewhere
      break;
    }
    yield;
  }
}

// earlier reads the messages of a call that it has in common with the one before.
export async function earlier(call, repeated, read) {
  const { items: [whole] } = await read({ id: call.span_id, limit: 1, names: ["gen_ai.prompt.*"] });
  return [...prompt(whole?.attributes || {})].filter(([i]) => i < repeated).map(([, m]) => m);
}

// length counts the messages of a call's prompt.
async function length(call, read) {
  const step = 99;
  let end = 0;
  for (let from = 0; end === from; from += step) {
    const { items: [span] } = await read({ id: call.span_id, limit: 1, names: range(from, step).map((i) => `gen_ai.prompt.${i}.role`) });
    end = Math.max(end, described(span?.attributes || {}).end);
  }
  return end;
}

// readFrom reads what the spans of a query say, and of their prompts the messages in compared and those from some place on. It leaves out long
// ones that do not go on from the first: they are read whole one by one, and what goes on from them not at all.
async function readFrom(query, compared, from, ids, read) {
  const found = new Map();
  const more = async (names) => {
    for (const { span_id: id, attributes } of (await read({ ...query, names })).items) {
      if (ids.has(id)) found.set(id, { ...found.get(id), ...attributes });
    }
  };
  // goesOn says whether some span has one of the last names that were asked for, of which not each must be there, and none beyond: a store that
  // does not know the parameter has returned all.
  const goesOn = (prefix, end) => [...found.values()].some((attributes) => {
    const last = Object.keys(attributes).reduce((most, name) => Math.max(most, name.startsWith(prefix) ? parseInt(name.slice(prefix.length), 10) || 0 : -1), -1);
    return last >= end - 10 && last < end;
  });
  const tools = 30;
  await more([...said, ...range(0, tools).map(toolOf), ...compared.map(messageOf), ...range(from, messagesAtOnce).map(messageOf)]);
  for (let end = tools; goesOn("gen_ai.request.functions.", end); end += messagesAtOnce) await more(range(end, messagesAtOnce).map(toolOf));
  const start = described(found.get([...ids][0]) || {});
  const reached = (name) => name.startsWith(`gen_ai.prompt.${from + messagesAtOnce - 1}.`);
  for (const [id, attributes] of found) {
    if (Object.keys(attributes).some(reached) && !common(start, prompt(attributes), (i) => i >= from || compared.includes(i))) ids.delete(id) && found.delete(id);
  }
  for (let end = from + messagesAtOnce; goesOn("gen_ai.prompt.", end); end += messagesAtOnce) await more(range(end, messagesAtOnce).map(messageOf));
  for (const [id, attributes] of found) found.set(id, described(attributes));
  return found;
}

function described(attributes) {
  const messages = prompt(attributes);
  return { attributes, prompt: messages, end: ([...messages.keys()].at(-1) ?? -1) + 1, reply: chat({ attributes }).replies[0] };
}

// common counts the messages that a prompt has in common with the call before and its reply, of which those that asked(index) names are
// known; it is 0 unless the prompt goes on from there.
function common(before, messages, asked) {
  const { end, prompt: known, reply } = before;
  const equal = (a, b) => b !== undefined && same(a, b);
  for (const [i, m] of known) {
    if (i < end && asked(i) && !equal(m, messages.get(i))) return i < end - (reply ? 0 : 1) ? 0 : i;
  }
  return reply && equal(reply, messages.get(end)) ? end + 1 : end;
}
