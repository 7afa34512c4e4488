// The candidates of a search for prompts: which came from which, what each is worth, and the difference of any two.
import { html } from "../lib/html.js";
import { find, get } from "../api.js";
import { useQuery } from "../hooks.js";
import { href, route, setParams } from "../route.js";
import { interval, isBetter, isWorse, tree } from "../lib/candidates.js";
import { count, number, oneLine, plural, visible } from "../lib/format.js";
import { Empty, Failure, Loading, Status, Text } from "../components/basic.js";
import { Table } from "../components/table.js";
import { Difference, plain } from "../components/difference.js";

const isRun = (id) => (e) => e.kind === "document" && e.document === "run/" + id;

// Prompts is the view of runs/{run}/prompts.
export function Prompts({ id }) {
  const { data: run, error, reload } = useQuery((abort) => get("runs/" + encodeURIComponent(id), {}, abort), [id], isRun(id));
  if (!run) return error ? html`<${Failure} error=${error} retry=${reload} /><a href=${href(["runs", id])}>To the run</a>` : html`<${Loading} />`;
  const search = run.metadata?.search;
  const head = html`<h1><a href=${href(["runs", id])}>${run.name ? html`<bdi>${visible(run.name)}</bdi>` : html`<span class="mono">${visible(id)}</span>`}</a> prompts <${Status} value=${run.status} /></h1>${error && html`<${Failure} error=${error} retry=${reload} />`}`;
  if (!Array.isArray(search?.candidates) || search.candidates.length === 0) return html`${head}<${Empty} title="No candidates."><p>A run of <code>apo</code> writes its candidates here, from its first round on.</p></${Empty}>`;
  return html`${head}<${Result} search=${search} /><${Tree} search=${search} />`;
}

function Result({ search }) {
  const seed = search.candidates[0].resources_id;
  if (!search.finished) return html`<p>The search goes on. Its best so far is <a class="mono" href=${href(["resources"], { id: search.best })}>${visible(search.best)}</a>${search.best === seed ? ", the seed" : ""}.</p>`;
  if (!search.compared) return html`<p>Nothing better than the seed was found.</p>`;
  return html`<p class="notice">${search.improved ? html`<b class="mono">${visible(search.best)}</b> won` : html`<b class="mono">${visible(search.compared)}</b> came closest, and the seed stays`}:
    its gain over the seed, on fresh rollouts of ${plural(search.gain.pairs, "validation task")}, is ${interval(search.gain, number)}${search.gain.level ? `, at ${number(100 * search.gain.level)} %` : ""}.</p>`;
}

function Tree({ search }) {
  const { from, to } = route.value.params;
  const nodes = tree(search.candidates);
  const beam = search.beam || [];
  const compare = (c) => setParams({ from: c.parent || search.candidates[0].resources_id, to: c.resources_id });
  const pick = (which, n) => html`<input type="radio" name=${which} aria-label="${which === "from" ? "Compare from" : "Compare to"} ${n.candidate.resources_id}" checked=${route.value.params[which] === n.candidate.resources_id} onChange=${() => setParams({ [which]: n.candidate.resources_id })} />`;
  const columns = [
    { name: "Candidate", cell: (n) => html`<span class="tree" style=${{ paddingLeft: Math.min(n.depth, 12) * 1.2 + "rem" }}>${n.depth > 0 && html`<span aria-hidden="true">└ </span>`}<a class="mono" href=${href(["resources"], { id: n.candidate.resources_id })}>${visible(n.candidate.resources_id)}</a></span>` },
    { name: "Is", cell: (n) => badges(n.candidate, search, beam) },
    { name: "Round", class: "num", cell: (n) => count(n.candidate.round) },
    { name: "Score", class: "num", cell: (n) => number(n.candidate.score) },
    { name: "Gain over parent", class: "num", cell: (n) => html`<span class=${isBetter(n.candidate.gain) ? "good" : isWorse(n.candidate.gain) ? "bad" : ""}>${interval(n.candidate.gain, number)}</span>` },
    { name: "Tasks", class: "num", cell: (n) => (n.candidate.gain?.pairs ? count(n.candidate.gain.pairs) : "") },
    { name: "Validation", class: "num", cell: (n) => number(n.candidate.validation) },
    { name: "Edited", cell: (n) => oneLine(n.candidate.edited || "", 30) },
    { name: "From", cell: (n) => pick("from", n) },
    { name: "To", cell: (n) => pick("to", n) },
  ];
  return html`
    <p class="muted">Score is the mean reward on the tasks of the round, the gain over the parent is on the same tasks, with its interval; validation is on all tasks. A row opens what it changed.</p>
    <${Table} label="Candidates" columns=${columns} items=${nodes} id=${(n) => n.candidate.resources_id} open=${(n) => compare(n.candidate)} />
    ${from && to ? html`<${Compared} key=${from + "\n" + to} from=${from} to=${to} search=${search} />` : html`<p>Choose two candidates, in the columns From and To, to see how their prompts differ.</p>`}`;
}

function badges(c, search, beam) {
  const words = [c.parent ? "" : "seed", c.resources_id === search.best ? "best" : "", beam.includes(c.resources_id) ? "in the beam" : ""].filter(Boolean);
  return words.join(", ");
}

const read = async (id, abort) => {
  try {
    return await find("resources/" + encodeURIComponent(id), abort);
  } catch (err) {
    if (err.status === 410) return { resources: {}, gone: true };
    throw err;
  }
};

function Compared({ from, to, search }) {
  const { data, error, reload } = useQuery((abort) => Promise.all([read(from, abort), read(to, abort)]), [from, to]);
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const [before, after] = data;
  const prompts = (r) => Object.entries(r.resources).filter(([, v]) => typeof v?.template === "string").map(([name]) => name);
  const names = [...new Set([...prompts(before), ...prompts(after)])].sort();
  const candidate = search.candidates.find((c) => c.resources_id === to);
  return html`
    <h2>From <span class="mono">${visible(from)}</span> to <span class="mono">${visible(to)}</span></h2>
    ${[[before, from], [after, to]].map(([r, id]) => r.gone && html`<p key=${id} class="notice">The store no longer has the resources ${visible(id)}.</p>`)}
    ${candidate?.critique && candidate.parent === from && html`<details><summary>The critique that it answers</summary><${Text} value=${candidate.critique} /></details>`}
    ${names.map((name) => html`<section key=${name} class="resource"><h3>${visible(name)}</h3><${Difference} before=${plain(before.resources[name])} after=${plain(after.resources[name])} /></section>`)}`;
}
