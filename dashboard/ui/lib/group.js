// What a group of rollouts of one task says: rewards, advantages, and where its conversations part. Pure functions.
import { calls, chat, entries } from "./span.js";

// These outcomes are no fault of the agent: algorithms leave such rollouts out.
const counted = ["", "ok", "agent_error"];
const attemptEnds = { timeout: "timeout", unresponsive: "unresponsive" };

// outcome says how an attempt ended, as far as its runner reported it.
export function outcome(attempt) {
  const { kind, message = "" } = attempt?.metadata?.["agentlightning.outcome"] || {};
  return { kind: typeof kind === "string" ? kind : attemptEnds[attempt?.status] || "", message: typeof message === "string" ? message : JSON.stringify(message) };
}

const ended = (r) => r.end_time !== null && r.end_time !== undefined;

// What grpo writes into the metadata of rollouts that it does not train on: the reasons of their groups, and those of single rollouts.
// Those that were oversampled are none of their group's; the reward of those that are truncated counts in it.
const oversampled = "oversampled";
const truncated = "truncated";
const ofGroups = ["no_variance", "failed", "stale"];
const recorded = {
  no_variance: "grpo drew another one instead, because all rewards that count are equal (dynamic_sampling)",
  failed: "grpo drew another one instead, because fewer rollouts count than min_viable asks for",
  stale: "grpo left it out, because its weights had become too old (max_staleness)",
  oversampled: "its group was complete without it",
  truncated: "one of its replies was cut off (mask_truncated); its reward counts in its group",
  withheld: "the redaction program did not let it pass",
  crowded: "the step had enough rollouts of the same user (per_user)",
  missing_reward: "it has no reward",
  malformed_trace: "its trace cannot be read, or its calls lack what training needs",
  no_tokens: "no call was recorded with the tokens of its reply",
  wrong_version: "weights that the run has not published answered a call",
  sampling: "a call was sampled with settings that change its log-probabilities",
  context_overflow: "its tokens do not fit the context of the model",
  evicted: "its spans were evicted before they were read",
  timeout: "it ran out of time",
  unresponsive: "its runner went away",
  cancelled: "it was cancelled, or did not end in the time of its group (group_timeout)",
  panic: "its agent panicked",
  model_error: "a call of its model failed",
  budget: "it used up what it may spend",
  setup_error: "it could not be set up, or not all of its calls were recorded",
};

// notLearned says why a run did not learn from a rollout, "" if no run has said so.
export function notLearned(rollout) {
  const reason = rollout.metadata?.dropped;
  return typeof reason === "string" && reason !== "" ? (Object.hasOwn(recorded, reason) ? recorded[reason] : "the run dropped it: " + reason) : "";
}

// score is what a rollout counts for in its group: {reward}, or {why} it does not count.
export function score(rollout) {
  const kind = outcome(rollout.attempt).kind;
  if (rollout.metadata?.dropped === oversampled) return { why: notLearned(rollout) };
  if (!ended(rollout)) return { why: "not finished" };
  if (!counted.includes(kind)) return { why: kind.replace(/_/g, " ") };
  if (notLearned(rollout) && ![truncated, ...ofGroups].includes(rollout.metadata.dropped)) return { why: notLearned(rollout) };
  if (rollout.attempt?.reward) return { reward: rollout.attempt.reward.value };
  if (kind === "agent_error" || (kind === "" && rollout.status === "failed")) return { reward: 0 };
  return { why: rollout.status === "cancelled" ? "cancelled" : "missing reward" };
}

const epsilon = 1e-4; // of algorithm/grpo

// summary says of a group how its rewards differ, and why it teaches nothing if it does not.
export function summary(rollouts) {
  const scores = rollouts.map(score);
  const rewards = scores.filter((s) => "reward" in s).map((s) => s.reward);
  const n = rewards.length;
  const mean = n ? rewards.reduce((a, b) => a + b, 0) / n : null;
  const sd = n ? Math.sqrt(rewards.reduce((a, b) => a + (b - mean) ** 2, 0) / n) : null;
  return { scores, rewards, mean, sd, waiting: rollouts.filter((r) => !ended(r)).length, dropped: dropped(rewards, scores, rollouts) };
}

// dropped says why a group that has ended has no advantages, "" if it has.
function dropped(rewards, scores, rollouts) {
  const kept = rollouts.find((r) => ofGroups.includes(r.metadata?.dropped));
  if (kept) return notLearned(kept);
  if (rollouts.some((r) => !ended(r))) return "";
  const equal = rewards.length > 1 && rewards.every((r) => r === rewards[0]);
  const why = [...new Set(scores.filter((s) => s.why).map((s) => s.why))].join(", ");
  if (rewards.length === 0) return "no rollout counts: " + why;
  if (rewards.length === 1) return rollouts.length === 1 ? "it has one rollout, which has no other to be compared with" : "only one rollout counts, the others do not: " + why;
  return equal ? "all rewards that count are equal" : "";
}

// advantage is that of a rollout: {value, high, recorded}, null if it has none. Those of its calls that a step has trained on come first,
// from value to high; then one that the algorithm wrote into the metadata as "advantage"; otherwise it is that of grpo's default,
// (reward − mean) / (standard deviation + 0.0001).
export function advantage(rollout, group, trained) {
  if (trained) return { value: trained.low, high: trained.high, recorded: true };
  const recorded = rollout.attempt?.metadata?.advantage ?? rollout.metadata?.advantage;
  if (typeof recorded === "number") return { value: recorded, recorded: true };
  const { reward } = score(rollout);
  if (reward === undefined || group.dropped || group.waiting > 0 || group.sd === null) return null;
  return { value: (reward - group.mean) / (group.sd + epsilon), recorded: false };
}

const number = (value) => Number(value) || 0;

// groups puts the training rollouts of a step into groups, in order, each with a number. Runs that number their groups leave the
// number 0 out; the rollouts of others are put together by their task and numbered here.
export function groups(rollouts) {
  const numbered = rollouts.some((r) => r.metadata?.group !== undefined);
  const found = new Map();
  const again = new Map(); // how many groups have had a number before: those that were dropped, and those that took their place
  for (const r of rollouts) {
    const number = numbered ? String(r.metadata?.group ?? 0) : String(r.metadata?.index ?? JSON.stringify(r.input));
    const name = () => (again.get(number) ? number + "-" + (again.get(number) + 1) : number);
    const [first] = found.get(name()) || [];
    const sample = r.metadata?.sample;
    const other = numbered && first?.metadata?.index !== r.metadata?.index;
    if (first && (other || (sample !== undefined && found.get(name()).some((o) => o.metadata?.sample === sample)))) {
      again.set(number, (again.get(number) || 0) + 1);
    }
    if (!found.has(name())) found.set(name(), []);
    found.get(name()).push(r);
  }
  const all = [...found].map(([key, members]) => ({ key, members: members.sort((a, b) => number(a.metadata?.sample) - number(b.metadata?.sample)) }));
  all.sort((a, b) => (parseInt(a.key, 10) || 0) - (parseInt(b.key, 10) || 0));
  return numbered ? all : all.map((g, i) => ({ ...g, key: String(i) }));
}

// transcript is all that was said in an attempt, each message once: {role, text, …, tokens, trained}. said is what its calls have added,
// by the ids of their spans.
export function transcript(spans, said) {
  const out = [];
  for (const { kind, span, trained } of entries(spans)) {
    if (kind !== "call") continue;
    const { prompt, replies, tokens } = said.get(span.span_id);
    out.push(...prompt);
    if (replies[0]) out.push({ ...replies[0], tokens, trained, reply: true });
  }
  return out;
}

// tokens adds up the tokens of an attempt's calls; null if none was recorded.
export function tokens(spans) {
  const all = calls(spans).map(chat).filter((c) => c.replyTokens !== undefined || c.promptTokens !== undefined);
  if (!all.length) return null;
  const sum = (of) => all.reduce((n, c) => n + (of(c) || 0), 0);
  return { prompt: sum((c) => c.promptTokens), reply: sum((c) => c.replyTokens) };
}

const tools = (m) => JSON.stringify(m.toolCalls.map((c) => [c.name, c.arguments])); // their ids are never the same
const alike = (a, b) => a.role === b.role && a.text === b.text && tools(a) === tools(b) && JSON.stringify(a.images) === JSON.stringify(b.images);

// parting is the place of the first message that is not the same in all transcripts: the length of what they share.
export function parting(transcripts) {
  const shown = transcripts.filter((t) => t.length > 0);
  if (shown.length < 2) return 0;
  let at = 0;
  while (shown.every((t) => at < t.length && alike(shown[0][at], t[at]))) at++;
  return at;
}
