// What spans say. Pure functions over the documents of the REST API.
import { parse } from "./json.js";
import { trained } from "./trained.js";

const rewardPrefix = "agentlightning.reward.";

// rewards returns the dimensions of a reward, primary first, or null if the span
// carries none.
export function rewards(span) {
  const attributes = span.attributes || {};
  const found = [];
  for (let i = 0; ; i++) {
    const value = attributes[`${rewardPrefix}${i}.value`];
    if (typeof value?.valueOf() !== "number") break;
    found.push({ name: said(attributes[`${rewardPrefix}${i}.name`]) || "primary", value: Number(value) });
  }
  return found.length ? found : null;
}

// posted says of a reward that came from others who gave it, why, and to which call, if not to the whole attempt.
function posted({ attributes: a }, spans) {
  const call = (s) => s.span_id === a["agentlightning.reward_span"] || (a["agentlightning.reward_call"] && s.attributes?.["gen_ai.response.id"] === a["agentlightning.reward_call"]);
  return { source: said(a["agentlightning.reward_source"]), why: said(a["agentlightning.reward_message"]), of: "agentlightning.reward_span" in a || "agentlightning.reward_call" in a ? spans.find(call) : undefined };
}

// said is a text that an agent or a model wrote, whatever the type of its attribute.
const said = (v) => (typeof v === "string" ? v : v === undefined || v === null ? "" : JSON.stringify(v));

// took is how long a span took, in seconds; null if it has no end or no start.
export const took = (span) => (span.start_time === null || span.end_time === null ? null : span.end_time - span.start_time);

export const failed = (span) => span.status?.status_code === "ERROR";

// calls returns the spans that are model calls as agents see them: each call once,
// though a proxy and an SDK's instrumentation may both have recorded it.
export function calls(spans) {
  const byProxy = spans.filter((s) => s.name === "litellm_request");
  return byProxy.length ? byProxy : spans.filter((s) => s.attributes && ("gen_ai.prompt.0.role" in s.attributes || "gen_ai.completion.0.role" in s.attributes));
}

// unflatten turns a.0.b attributes below a prefix into objects and lists.
export function unflatten(attributes, prefix) {
  const root = Object.create(null); // names like __proto__ are only names
  for (const [name, value] of Object.entries(attributes || {})) {
    if (!name.startsWith(prefix + ".")) continue;
    const path = name.slice(prefix.length + 1).split(".");
    let at = root;
    for (const [i, part] of path.entries()) {
      if (i === path.length - 1) {
        if (typeof at === "object") at[part] = value;
      } else {
        if (typeof at[part] !== "object" || at[part] === null) at[part] = Object.create(null);
        at = at[part];
      }
    }
  }
  return root;
}

const inOrder = (object) =>
  Object.keys(object || {})
    .filter((k) => /^\d+$/.test(k))
    .sort((a, b) => a - b)
    .map((k) => object[k]);

// message reads one recorded message: its role, text, images, reasoning and calls of
// tools. Some engines send no role with a reply.
function message(recorded, role) {
  const { texts, images } = content(recorded.content);
  return {
    role: said(recorded.role) || role,
    text: texts.join("\n"),
    images,
    reasoning: said(recorded.reasoning_content) || said(recorded.reasoning),
    toolCallID: said(recorded.tool_call_id),
    toolCalls: inOrder(recorded.tool_calls).map((c) => ({
      id: said(c.id),
      name: said(c.name) || said(c.function?.name),
      arguments: c.arguments ?? c.function?.arguments ?? "",
    })),
    finish: said(recorded.finish_reason),
  };
}

const imageOf = (part) => part?.image_url?.url ?? part?.image_url;

// content reads a message's content: a text, or a list of parts, which may be recorded
// as JSON. Another list in a text is what a model or a tool has said.
function content(value) {
  const texts = [];
  const images = [];
  let parts = value;
  if (typeof value === "string" && value.startsWith("[{")) {
    try {
      const list = parse(value);
      if (list.every((part) => typeof part?.type === "string") && list.some((part) => typeof (part.text ?? imageOf(part)) === "string")) parts = list;
    } catch {
      // a text that begins like a list
    }
  }
  if (Array.isArray(parts)) {
    for (const part of parts) {
      const url = imageOf(part);
      if (typeof url === "string") images.push(url);
      else if (typeof part?.text === "string") texts.push(part.text);
      else texts.push(JSON.stringify(part));
    }
  } else if (parts !== undefined && parts !== null) {
    texts.push(typeof parts === "string" ? parts : JSON.stringify(parts));
  }
  return { texts, images };
}

// prompt returns the messages of a call's prompt by their number, in order.
export function prompt(attributes) {
  const recorded = unflatten(attributes, "gen_ai.prompt");
  return new Map(Object.keys(recorded).filter((k) => /^\d+$/.test(k)).sort((a, b) => a - b).map((k) => [Number(k), message(recorded[k], "unknown")]));
}

// chat reads a model call: its messages, its replies, and the tokens of the reply.
export function chat(span) {
  const a = span.attributes || {};
  return {
    span,
    model: said(a["gen_ai.request.model"]) || said(a["gen_ai.response.model"]),
    version: said(a["agentlightning.model.version"]),
    prompt: [...prompt(a).values()],
    replies: inOrder(unflatten(a, "gen_ai.completion")).map((m) => message(m, "assistant")),
    tools: inOrder(unflatten(a, "gen_ai.request.functions")).map((t) => said(t.name)),
    tokens: tokens(a),
    promptTokens: a["gen_ai.usage.prompt_tokens"] ?? a["gen_ai.usage.input_tokens"],
    replyTokens: a["gen_ai.usage.completion_tokens"] ?? a["gen_ai.usage.output_tokens"],
    firstByte: a["agentlightning.proxy.first_byte_seconds"],
    seconds: a["agentlightning.proxy.total_seconds"] ?? took(span),
    failed: failed(span),
    error: span.status?.description || "",
  };
}

// tokens returns the reply's tokens as {text, logprob}, if they were recorded.
function tokens(attributes) {
  const recorded = attributes["logprobs.content"];
  if (!recorded) return [];
  try {
    const list = typeof recorded === "string" ? JSON.parse(recorded) : recorded;
    return list.map((t) => ({ text: t.token, logprob: t.logprob }));
  } catch {
    return [];
  }
}

export const same = (a, b) => a.role === b.role && a.text === b.text && a.toolCallID === b.toolCallID && JSON.stringify(a.toolCalls) === JSON.stringify(b.toolCalls) && a.images.length === b.images.length;

// outline names the attributes that all but the messages of an attempt are shown by.
export const outline = [
  rewardPrefix + "*", "agentlightning.reward_source", "agentlightning.reward_message", "agentlightning.reward_span", "agentlightning.reward_call", "agentlightning.message.body",
  "agentlightning.training*", "agentlightning.model.version", "agentlightning.proxy.first_byte_seconds", "agentlightning.proxy.total_seconds",
  "exception.type", "exception.message", "exception.stacktrace", "gen_ai.request.model", "gen_ai.response.model", "gen_ai.response.id", "gen_ai.usage.*",
  "gen_ai.prompt.0.role", "gen_ai.completion.0.role",
];

// isException tells the events in which OpenTelemetry records exceptions.
export const isException = (event) => event.name === "exception" && Boolean(event.attributes?.["exception.type"] ?? event.attributes?.["exception.message"]);

// exception reads what the attributes of a span, or of an event, say of an exception.
export const exception = (attributes) => ({ type: said(attributes["exception.type"]) || "error", text: said(attributes["exception.message"]), trace: said(attributes["exception.stacktrace"]) });

// passing tells an exception that a span has let through to its parent, which then has an event of its own.
const passing = (parent, { attributes }) => JSON.stringify([parent, attributes["exception.type"], attributes["exception.message"]]);

// entries are the calls, rewards, notes and exceptions of an attempt in order; trained says what a step has computed of a call. Of an
// exception that ended several spans, the innermost is shown.
export function entries(spans) {
  const shown = [];
  const wanted = new Set(calls(spans));
  const learned = trained(spans);
  const passedOn = new Set(spans.flatMap((s) => (failed(s) && s.parent_id ? (s.events || []).filter(isException).map((e) => passing(s.parent_id, e)) : [])));
  for (const span of spans) {
    const reward = rewards(span);
    if (reward) shown.push({ kind: "reward", span, reward, ...posted(span, spans) });
    else if (span.name === "agentlightning.message") shown.push({ kind: "note", span, text: said(span.attributes["agentlightning.message.body"]) });
    else if (span.name === "agentlightning.exception" || (failed(span) && span.attributes?.["exception.message"])) shown.push({ kind: "exception", span, ...exception(span.attributes) });
    else if (failed(span)) {
      const last = span.events?.findLast(isException);
      if (last && !passedOn.has(passing(span.span_id, last))) shown.push({ kind: "exception", span, ...exception(last.attributes) });
    }
    if (!wanted.has(span)) continue;
    shown.push({ kind: "call", ...chat(span), trained: learned.get(span.span_id) });
  }
  return shown;
}
