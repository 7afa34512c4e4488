// What a learner has computed of the calls of an attempt, and has written as a span beside them. Pure functions.

export const learned = "agentlightning.training"; // the name of the span, and the beginning of its attributes' names

const texts = (v) => (typeof v === "string" ? v : "");
const finite = (v) => (typeof v === "number" && Number.isFinite(v) ? v : null);

function bytes(base64) {
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return new Uint8Array(0);
  }
}

// series reads a number for each token of a reply: an integer of 16 bits, times a scale. It is null if there is none.
function series(recorded) {
  const scale = finite(recorded?.scale);
  const raw = bytes(texts(recorded?.data));
  if (scale === null || raw.length < 2) return null;
  const view = new DataView(raw.buffer);
  return Float64Array.from({ length: raw.length >> 1 }, (_, i) => view.getInt16(2 * i, true) * scale);
}

// trained returns what was computed of each call, by the id of its span: {run, step, role, advantage, recorded}. Of several steps that
// were trained on a call the last one counts.
export function trained(spans) {
  const found = new Map();
  for (const { name, attributes: a } of spans) {
    if (name !== learned || !a) continue;
    let calls = [];
    try {
      calls = JSON.parse(a[learned + ".calls"]);
    } catch {
      // another program's
    }
    if (!Array.isArray(calls)) continue;
    for (const c of calls) {
      if (!c || typeof c.span_id !== "string") continue;
      found.set(c.span_id, { run: texts(a[learned + ".run"]), step: finite(a[learned + ".step"]), role: texts(a[learned + ".role"]), advantage: finite(c.advantage), recorded: c });
    }
  }
  return found;
}

// advantages are the least and the most of an attempt's calls, {low, high}; null if none was recorded.
export function advantages(spans) {
  const all = [];
  for (const { advantage, recorded } of trained(spans).values()) {
    if (advantage !== null) all.push(advantage);
    else all.push(...(series(recorded.advantages) ?? []));
  }
  return all.length ? { low: all.reduce((a, b) => Math.min(a, b)), high: all.reduce((a, b) => Math.max(a, b)) } : null;
}

// ofTokens returns what was computed of the n tokens of a call: {ratio, mask, advantage}, each a list, or null if it is not known. The
// first token of a reply without a prompt is not a target: what was recorded is of the last ones.
export function ofTokens(call, n) {
  if (!call) return { ratio: null, mask: null, advantage: null };
  const { recorded } = call;
  const ending = (list) => (list && list.length <= n ? [...Array(n - list.length).fill(null), ...list] : null);
  const ratios = series(recorded.log_ratios);
  const left = bytes(texts(recorded.left_out));
  return {
    ratio: ending(ratios && ratios.map(Math.exp)),
    mask: Array.from({ length: n }, (_, i) => (left.length === 0 || !((left[i >> 3] >> (i & 7)) & 1) ? 1 : 0)),
    advantage: call.advantage !== null ? Array(n).fill(call.advantage) : ending(series(recorded.advantages)),
  };
}
