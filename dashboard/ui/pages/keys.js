// Who may do what: the keys of the store, for those who manage them.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { del, get, post } from "../api.js";
import { emptied, useQuery, useTick } from "../hooks.js";
import { now } from "../lib/clock.js";
import { oneLine, until } from "../lib/format.js";
import { Act, Empty, Failure, Loading, Time } from "../components/basic.js";
import { Table } from "../components/table.js";

const scopes = [
  ["read", "see everything but keys"],
  ["ingest", "send spans and rewards"],
  ["live", "start rollouts outside the queue, call models for them"],
  ["runner", "take rollouts from the queue and run them"],
  ["train", "enqueue, publish resources, steer models"],
  ["admin", "everything, keys too"],
];

function state(k) {
  if (k.revoke_time) return "revoked";
  return k.expire_time && k.expire_time <= now() ? "expired" : "valid";
}

export function Keys() {
  useTick(); // keys expire
  const { data, error, reload } = useQuery((abort) => get("keys", {}, abort), [], (e) => e.kind === "document" && (e.document || "").startsWith("key/"));
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`
    <h1>Access</h1>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    <${Create} done=${reload} />
    ${data.items.length === 0 ? html`<${Empty} title="There are no keys besides the store's token." />` : html`
      <${Table} label="Keys" columns=${columns(reload)} items=${data.items} id=${(k) => k.id} />`}`;
}

function Create({ done }) {
  const [name, setName] = useState("");
  const [chosen, setChosen] = useState(["read"]);
  const [days, setDays] = useState("90");
  const [odd, setOdd] = useState(false); // what is typed is no number; the browser then gives "" as the value
  const wrong = odd || (days !== "" && !(Number(days) > 0));
  const [made, setMade] = useState(null);
  const create = async () => {
    const key = await post("keys", { name: name.trim(), scopes: chosen, expire_seconds: Number(days) * 86400 });
    setMade(key);
    setName(emptied(name));
    done();
  };
  const toggle = (scope) => setChosen(chosen.includes(scope) ? chosen.filter((s) => s !== scope) : [...chosen, scope]);
  return html`<form class="key-form" onSubmit=${(e) => e.preventDefault()}>
    <label>Name <input value=${name} maxlength="200" onInput=${(e) => setName(e.target.value)} placeholder="what it is for" /></label>
    <fieldset><legend>Scopes</legend>${scopes.map(([s, may]) => html`<label key=${s} title=${may}><input type="checkbox" checked=${chosen.includes(s)} onChange=${() => toggle(s)} /> ${s}</label>`)}</fieldset>
    <label>Days, empty for ever <input type="number" step="any" value=${days} aria-invalid=${wrong ? "true" : undefined} onInput=${(e) => (setDays(e.target.value), setOdd(e.target.validity.badInput))} /></label>
    <${Act} run=${create} disabled=${!name.trim() || chosen.length === 0 || wrong}>Create</${Act}>
    ${made && html`<p role="status">The key ${oneLine(made.name, 60)}, shown this once: <code class="mono">${made.key}</code> <button type="button" onClick=${() => setMade(null)}>Done</button></p>`}
  </form>`;
}

const columns = (reload) => [
  { name: "Key", class: "mono", cell: (k) => k.id },
  { name: "State", cell: state },
  { name: "Name", cell: (k) => oneLine(k.name, 60) },
  { name: "Scopes", cell: (k) => k.scopes.join(", ") },
  { name: "Created", cell: (k) => html`<${Time} at=${k.create_time} />` },
  { name: "By", cell: (k) => oneLine(k.created_by, 40) },
  { name: "Expires", cell: (k) => (k.expire_time ? html`<${Time} at=${k.expire_time} say=${until} />` : "never") },
  {
    name: "",
    cell: (k) =>
      state(k) === "valid" &&
      html`<${Act} danger run=${async () => (await del("keys/" + encodeURIComponent(k.id)), reload())} confirm=${`Revoke the key ${k.name}? Whoever uses it is refused within a second.`}>Revoke</${Act}>`,
  },
];
