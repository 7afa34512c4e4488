// One step of a run: its groups, how their rewards differ, and which of them teach nothing; and one group of it.
import { html } from "../lib/html.js";
import { get } from "../api.js";
import { useQuery } from "../hooks.js";
import { go, href } from "../route.js";
import { groups, summary } from "../lib/group.js";
import { count, number, oneLine, plural, visible } from "../lib/format.js";
import { Empty, Failure, Loading } from "../components/basic.js";
import { Table } from "../components/table.js";
import { Group } from "./group.js";

const pageSize = 1000;
const most = 10_000; // rollouts of one step

// Step is the view of runs/{run}/steps/{step}, and with a group behind it of that one.
export function Step({ path: [, run, , step, , group] }) {
  const at = /^\d+$/.test(step) ? Number(step) : null;
  const { data, error, reload } = useQuery((abort) => (at !== null ? read(run, at, abort) : null), [run, step], (e) => ["rollout", "attempt", "spans"].includes(e.kind));
  if (at === null) return html`<${Empty} title="There is no such step."><a href=${href(["runs", run])}>To the run</a></${Empty}>`;
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} /><a href=${href(["runs", run])}>To the run</a>` : html`<${Loading} />`;
  const failure = error && html`<${Failure} error=${error} retry=${reload} />`;
  if (group !== undefined) return html`${failure}<${Group} run=${run} step=${at} all=${data.groups} name=${group} />`;
  return html`
    <h1><a class="mono" href=${href(["runs", run])}>${visible(run)}</a> step ${count(at)}</h1>
    ${failure}
    <nav class="pages" aria-label="Steps">
      <a href=${href(["runs", run, "steps", String(Math.max(0, at - 1))])}>Step before</a>
      <a href=${href(["runs", run, "steps", String(at + 1)])}>Step after</a>
      <a href=${href(["rollouts"], { label: `run=${run}\nstep=${at}` })}>All rollouts of the step</a>
    </nav>
    ${data.total > most && html`<p class="notice">The step has ${count(data.total)} rollouts; the groups are those of the first ${count(most)}.</p>`}
    ${data.groups.length === 0 ? html`<${Empty} title="No training rollouts in this step."><p>Rollouts belong to a step by <code>run</code> and <code>step</code> in their metadata. A validation has none of training.</p></${Empty}>` : html`<${Groups} run=${run} step=${at} all=${data.groups} />`}`;
}

async function read(run, step, abort) {
  const items = [];
  for (;;) {
    const page = await get("rollouts", { label: ["run=" + run, "step=" + step], mode_in: "train", limit: pageSize, offset: items.length }, abort);
    items.push(...page.items);
    if (page.items.length === 0 || items.length >= Math.min(page.total, most)) return { total: page.total, groups: groups(items) };
  }
}

function Groups({ run, step, all }) {
  const rows = all.map((g) => ({ ...g, ...summary(g.members) }));
  const skipped = rows.filter((g) => g.dropped).length;
  const at = (g) => ["runs", run, "steps", String(step), "groups", g.key];
  const columns = [
    { name: "Group", cell: (g) => html`<a href=${href(at(g))}>${oneLine(g.key, 40)}</a>` },
    { name: "Task", class: "wide", cell: (g) => html`<bdi>${oneLine(g.members[0].input, 100)}</bdi>` },
    { name: "Rollouts", class: "num", cell: (g) => count(g.members.length) },
    { name: "Mean reward", class: "num", cell: (g) => number(g.mean) },
    { name: "Spread", class: "num", cell: (g) => number(g.sd) },
    { name: "Lowest", class: "num", cell: (g) => (g.rewards.length ? number(Math.min(...g.rewards)) : "–") },
    { name: "Highest", class: "num", cell: (g) => (g.rewards.length ? number(Math.max(...g.rewards)) : "–") },
    { name: "Teaches", cell: (g) => (g.waiting ? plural(g.waiting, "rollout") + " unfinished" : g.dropped ? "nothing: " + g.dropped : "yes") },
  ];
  return html`
    <p>${plural(rows.length, "group")}, ${skipped === 0 ? "each with different rewards." : skipped + " without advantages, from which a policy learns nothing."}</p>
    <${Table} label="Groups of the step" columns=${columns} items=${rows} id=${(g) => g.key} open=${(g) => go(at(g))} />`;
}
