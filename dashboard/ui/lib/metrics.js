// Which metrics of a run are drawn together, and their values as columns. Pure functions.

const panels = [
  { title: "Training reward", names: ["reward_mean", "pass_rate"] },
  { title: "Validation", names: ["validation/reward_mean", "validation/pass_rate"], interval: ["validation/ci95/0", "validation/ci95/1"] },
  { title: "Loss", names: ["loss"] },
  { title: "KL", names: ["kl", "drift/kl"] },
  { title: "Entropy", names: ["entropy", "drift/entropy"] },
  { title: "Mismatch of log-probabilities", names: ["logprob_gap/mean", "logprob_gap/max"] },
  { title: "Staleness", names: ["staleness/mean", "staleness/max"] },
  { title: "Seconds by phase", names: ["seconds/rollouts", "seconds/train", "seconds/publish", "seconds/validate", "seconds/checkpoint"] },
  { title: "Tokens", names: ["prompt_tokens", "response_tokens"] },
  { title: "Gradient norm", names: ["grad_norm"] },
];

// trained leaves out the zeros of what did not happen: in a step without rollouts, as before the first, only the validation and
// the times count.
export function trained(m) {
  if (m.values.rollouts !== 0) return m;
  return { ...m, values: Object.fromEntries(Object.entries(m.values).filter(([name]) => /^(validation|seconds)\//.test(name))) };
}

// columns turns the metrics of runs, each a list by step, into the data of a chart: the steps of all, and for each line its
// values, null where a run has none.
export function columns(lines) {
  const steps = [...new Set(lines.flatMap((l) => l.items.filter((m) => l.name in m.values).map((m) => m.step)))].sort((a, b) => a - b);
  const at = new Map(steps.map((s, i) => [s, i]));
  return [steps, ...lines.map((l) => {
    const column = new Array(steps.length).fill(null);
    for (const m of l.items) if (l.name in m.values) column[at.get(m.step)] = m.values[l.name];
    return column;
  })];
}

// layout says which charts runs get: {title, lines: [{label, items, name}], interval}. One run has the metrics of a panel in one
// chart; several have a chart for each metric, with a line for each run. rest are the metrics that no panel draws.
export function layout(runs) {
  const present = new Set(runs.flatMap((r) => r.items.flatMap((m) => Object.keys(m.values))));
  const line = (r, name, label) => ({ label, name, items: r.items });
  const single = (name, title) => ({ title, lines: runs.map((r) => line(r, name, runs.length > 1 ? r.label : name)) });
  const charts = [];
  const drawn = new Set();
  for (const panel of panels) {
    const names = panel.names.filter((n) => present.has(n));
    const interval = (panel.interval || []).filter((n) => present.has(n));
    for (const n of [...names, ...interval]) drawn.add(n);
    if (!names.length) continue;
    if (runs.length > 1) charts.push(...names.map((n) => single(n, panel.title + (names.length > 1 ? ": " + n : ""))));
    else charts.push({ title: panel.title, lines: [...names, ...interval].map((n) => line(runs[0], n, n)), interval: interval.length === 2 });
  }
  const rest = [...present].filter((n) => !drawn.has(n)).sort().map((n) => single(n, n));
  return { charts, rest };
}
