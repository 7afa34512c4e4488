// The frame around every view: navigation, the state of the connection, sign-in, help.
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./lib/html.js";
import { go, href, keepAddress, route, settle } from "./route.js";
import { lapsed, learn, oidcLogin, session, signIn, signOut, unauthorized } from "./api.js";
import { absence, connection, follow } from "./live.js";
import { retryAfter, useKeys } from "./hooks.js";
import { visible } from "./lib/format.js";
import { project, projectPage } from "./lib/project.js";
import { Empty, Guard } from "./components/basic.js";
import { Overview } from "./pages/overview.js";
import { Rollouts } from "./pages/rollouts.js";
import { Rollout } from "./pages/rollout.js";
import { Run, Runs } from "./pages/runs.js";
import { Step } from "./pages/step.js";
import { Prompts } from "./pages/prompts.js";
import { Resources } from "./pages/resources.js";
import { Release, Releases } from "./pages/releases.js";
import { Workers } from "./pages/workers.js";
import { Keys } from "./pages/keys.js";

const views = [
  { path: "", name: "Overview", page: Overview },
  { path: "runs", name: "Runs", page: Runs, detail: Run, parts: { steps: Step, prompts: Prompts } },
  { path: "rollouts", name: "Rollouts", page: Rollouts, detail: Rollout },
  { path: "resources", name: "Resources", page: Resources },
  { path: "workers", name: "Workers", page: Workers },
  { path: "releases", name: "Releases", page: Releases, detail: Release },
  { path: "keys", name: "Access", page: Keys },
];

const connectionWords = { live: "live", connecting: "connecting", paused: "paused", lost: "connection lost", refused: "not allowed", absent: "no store", ended: "signed out" };

function App() {
  const { path } = route.value;
  const [help, setHelp] = useState(false);
  const main = useRef(null);
  const view = views.find((v) => v.path === (path[0] || ""));
  const Page = view && (path[2] ? Object.hasOwn(view.parts || {}, path[2]) && view.parts[path[2]] : path[1] ? view.detail : view.page);
  useEffect(() => {
    document.title = [path.length ? path.join(" · ") : "Overview", project, "agl"].filter(Boolean).join(" – ");
    main.current?.focus({ preventScroll: true });
  }, [path.join("/")]);
  // Also where no size changes: two orders of one list have the same height. And again with the next frame: a list that is empty and full again between
  // two frames has not changed its size either.
  useEffect(() => {
    settle();
    const again = requestAnimationFrame(settle);
    return () => cancelAnimationFrame(again);
  }, [route.value]);
  useEffect(() => new ResizeObserver(settle).observe(main.current), []);
  const [failure, setFailure] = useState(""); // of signing out
  const leave = () => signOut().then(() => setFailure(""), (err) => setFailure("You are still signed in: " + err.message));
  const signedIn = session.value?.methods.length > 0 && session.value.identity;
  useEffect(() => {
    let timer = 0;
    const again = () => (timer = setTimeout(ask, 1000 * retryAfter)); // the views say that the store cannot be reached
    const ask = () => session.value || (document.hidden ? again() : learn().catch(again));
    learn().catch(again);
    return () => clearTimeout(timer);
  }, []);
  useKeys({
    ...Object.fromEntries(views.map((v, i) => [i + 1, () => (setHelp(false), go(v.path ? [v.path] : []))])),
    "?": () => setHelp(!help),
    Escape: () => (help ? setHelp(false) : document.activeElement?.blur()),
    "/": () => document.querySelector("input[type=search]")?.focus(),
  });
  return html`
    <header class="top">
      <a class="skip" href=${href(path, route.value.params)} onClick=${() => main.current.focus()}>Skip to content</a>
      <a class="brand" href=${href([])}>agl</a>
      ${project && html`<span class="project"><span class="hidden">project </span>${project}</span>`}
      <nav aria-label="Views">${views.map((v) => html`<a key=${v.path} href=${href(v.path ? [v.path] : [])} aria-current=${v === view ? "page" : undefined}>${v.name}</a>`)}</nav>
      <span class="connection ${connection.value}" role="status">${connectionWords[connection.value]}</span>
      ${signedIn && html`<button class="small" title=${"Signed in as " + session.value.identity.name} onClick=${leave}>Sign out</button>`}
      <button class="small" aria-haspopup="dialog" onClick=${() => setHelp(true)}>Shortcuts</button>
    </header>
    <main ref=${main} tabindex="-1">
      ${signedIn && failure && html`<p class="notice bad" role="alert">${failure}</p>`}
      ${absence.value && html`<p class="notice bad" role="alert">There is no store at this address: ${visible(absence.value)}</p>`}
      ${unauthorized.value ? html`<${SignIn} />` : Page ? html`<${Guard} key=${path.slice(0, 4).join("/")}><${Page} id=${path[1]} path=${path} /></${Guard}>` : html`<${Empty} title="There is no such view."><a href=${href([])}>To the overview</a></${Empty}>`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

function SignIn() {
  const [value, setValue] = useState("");
  const [failure, setFailure] = useState("");
  const field = useRef(null);
  useEffect(() => field.current.focus({ preventScroll: true }), []); // browsers heed autofocus only while nothing else has the focus
  const submit = async (event) => {
    event.preventDefault();
    try {
      await signIn(value.trim());
    } catch (err) {
      setFailure(err.status === 401 ? "The store did not accept this key." : err.message);
    }
  };
  return html`<form class="sign-in" onSubmit=${submit}>
    <h1>Sign in</h1>
    ${lapsed.value && html`<p class="notice" role="alert">Your sign-in has ended: its key has expired or was revoked, or the session is over. Sign in to go on where you were.</p>`}
    ${session.value?.methods.includes("oidc") && html`<p><a class="button" href=${oidcLogin} onClick=${keepAddress}>Sign in with your organisation</a></p>`}
    <p>This store asks for a key. It is the value of <code>AGL_TOKEN</code> with which the store was started, or a key that its operator made for you.</p>
    ${session.value?.projects && html`<p>The key of a project is accepted at the page of the project: <code>${projectPage("NAME")}</code></p>`}
    <label>Key <input type="password" autocomplete="current-password" value=${value} onInput=${(e) => setValue(e.target.value)} required ref=${field} /></label>
    ${failure && html`<p role="alert">${failure}</p>`}
    <button type="submit">Sign in</button>
  </form>`;
}

const keys = [
  [views.map((v, i) => i + 1).join(" "), views.map((v) => v.name.toLowerCase()).join(", ")],
  ["/", "search"],
  ["j k", "next and previous row or span"],
  ["Enter", "open the row"],
  ["← →", "close and open a span's children"],
  ["Esc", "leave a field, close this"],
  ["?", "this list"],
];

function Help({ close }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    const shown = dialog.current;
    shown.showModal();
    return () => {
      shown.close(); // first: while it is open, nothing outside it takes the focus; its event comes later, and may find the next dialog
      before.focus({ preventScroll: true });
    };
  }, []);
  return html`<dialog ref=${dialog} class="help" onClose=${() => dialog.current && close()} aria-label="Shortcuts">
    <h2>Shortcuts</h2>
    <dl>${keys.map(([k, what]) => html`<div key=${k}><dt><kbd>${k}</kbd></dt><dd>${what}</dd></div>`)}</dl>
    <button onClick=${() => dialog.current.close()}>Close</button>
  </dialog>`;
}

follow();
render(html`<${App} />`, document.getElementById("app"));
