// What rollouts are filtered by. Each value is a parameter of the view's address.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { route, setParams } from "../route.js";
import { oneLine, visible } from "../lib/format.js";

const list = (text, separator) => (text ? text.split(separator) : []);

// change sets filters and goes back to the first page.
const change = (changes) => setParams({ ...changes, offset: "", after: "" });

// Choices are the values of which any may match; one that is given by comma in the address.
export function Choices({ legend, name, values }) {
  const chosen = list(route.value.params[name], ",");
  const toggle = (v) => change({ [name]: (chosen.includes(v) ? chosen.filter((x) => x !== v) : [...chosen, v]).join(",") });
  return html`<fieldset><legend>${legend}</legend>${values.map((v) => html`<label key=${v} class="check"><input type="checkbox" checked=${chosen.includes(v)} onChange=${() => toggle(v)} />${v}</label>`)}</fieldset>`;
}

// Entry is a text that counts when it is complete: when the reader presses Enter or goes on.
export function Entry({ label, name, type = "text", ...rest }) {
  return html`<label>${label} <input type=${type} value=${route.value.params[name] || ""} step=${type === "number" ? "any" : undefined} ...${rest} onChange=${(e) => change({ [name]: e.target.value.trim() })} /></label>`;
}

// Pairs are several name=value, all of which must match; each is a line of the parameter.
export function Pairs({ label, name, placeholder }) {
  const pairs = list(route.value.params[name], "\n");
  const [value, setValue] = useState("");
  const wrong = value !== "" && !/^[^=]+=/.test(value);
  const add = () => {
    if (!value || wrong) return;
    if (!pairs.includes(value)) change({ [name]: [...pairs, value].join("\n") });
    setValue("");
  };
  return html`<span class="pairs"><label>${label} <input value=${value} placeholder=${placeholder} aria-invalid=${wrong ? "true" : undefined}
      onInput=${(e) => setValue(e.target.value)} onChange=${add} onKeyDown=${(e) => e.key === "Enter" && add()} /></label>${wrong && html`<span role="alert" class="muted">name=value</span>`}
    ${pairs.map((p) => html`<button key=${p} type="button" class="small" aria-label="Remove the ${label.toLowerCase()} ${visible(p)}" onClick=${() => change({ [name]: pairs.filter((x) => x !== p).join("\n") })}>${oneLine(p, 60)} ×</button>`)}</span>`;
}
