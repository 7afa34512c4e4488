// The tokens of a reply, coloured by what is known of each.
import { useMemo, useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { route, setParams } from "../route.js";
import { count, number, visible } from "../lib/format.js";
import { ofTokens } from "../lib/trained.js";

const tokensAtFirst = 2000;

// away is a class for how far a number is from what is neutral: n0 to n3 below, q0 to q3 above.
const away = (by, bounds) => (by < 0 ? "n" : "q") + bounds.filter((b) => Math.abs(by) >= b).length;

const noStep = "No step has said what it computed of this call: it was not trained on, or its learner keeps no record. grpo does.";

// What tokens are coloured by: a class for a value, what its classes mean, and why it may not be known.
const kinds = {
  logprob: {
    label: "log-probability", of: (p) => "p" + [0.02, 0.1, 0.3, 0.6, 0.9].filter((bound) => Math.exp(p) >= bound).length,
    scale: [["p5", "likely"], ["p3", "less likely"], ["p0", "surprising"]],
    title: (p) => `log-probability ${number(p)}, probability ${number(Math.exp(p))}`,
  },
  ratio: {
    label: "ratio", of: (r) => away(Math.log(r), [0.01, 0.1, 0.4]),
    scale: [["n3", "less likely by now"], ["q0", "the same"], ["q3", "likelier by now"]],
    title: (r) => `ratio ${number(r)}: how much likelier the weights in training find it than those that sampled it`,
    unknown: "The step has not kept the ratios of this call.",
  },
  mask: {
    label: "mask", of: (m) => (m ? "q1" : "n3"), scale: [["q1", "trained on"], ["n3", "left out"]],
    title: (m) => (m ? "trained on" : "left out by the correction of the step"), unknown: noStep,
  },
  advantage: {
    label: "advantage", of: (a) => away(a, [1e-6, 0.5, 1.5]), scale: [["n3", "to be made rarer"], ["q0", "none"], ["q3", "to be made likelier"]],
    title: (a) => `advantage ${number(a)}`, unknown: "The step has not kept the advantages of the single tokens of this call.",
  },
};

// Tokens colours each token. trained is what a step has computed of their call, if there is one.
export function Tokens({ tokens, trained }) {
  const [most, setMost] = useState(tokensAtFirst);
  const by = Object.hasOwn(kinds, route.value.params.by ?? "") ? route.value.params.by : "logprob";
  const known = useMemo(() => ofTokens(trained, tokens.length), [trained, tokens.length]);
  const kind = kinds[by];
  const values = by === "logprob" ? tokens.map((t) => t.logprob) : known[by];
  return html`<div class="tokens" dir="auto">
    <div class="by" role="group" aria-label="Colour tokens by">${Object.entries(kinds).map(
      ([name, k]) => html`<button key=${name} class="small" aria-pressed=${name === by} onClick=${() => setParams({ by: name === "logprob" ? "" : name })}>${k.label}</button>`)}</div>
    ${values ? html`<p class="scale">${kind.scale.map(([c, what]) => html`<span key=${c} class=${c}>${what}</span>`)}</p>` : html`<p class="scale">${trained ? kind.unknown : noStep}</p>`}
    ${tokens.slice(0, most).map((t, i) => html`<span key=${i} ...${colour(kind, values?.[i])}>${visible(String(t.text))}</span>`)}
    ${tokens.length > most && html`<button class="small more" onClick=${() => setMost(most * 5)}>show more of ${count(tokens.length - most)} tokens</button>`}
  </div>`;
}

const colour = (kind, value) => (typeof value === "number" && Number.isFinite(value) ? { class: kind.of(value), title: kind.title(value) } : {});
