// What a reader of the page sees and does, in a real browser.
import assert from "node:assert/strict";
import { createServer, request as forward } from "node:http";
import { api, axe, base, made, open, test, token } from "./browser.mjs";

const views = {
  overview: { hash: "", shows: "Overview" },
  runs: { hash: "runs", shows: "grpo" },
  run: { hash: "runs/" + made.run, shows: "Seconds by phase" },
  compared: { hash: "runs/" + made.run + "?compare=" + made.other, shows: "Seconds by phase: seconds/train" },
  python: { hash: "runs/" + encodeURIComponent(made.python), shows: "of <b>Python</b>" },
  step: { hash: `runs/${made.run}/steps/1`, shows: "Groups of the step|16 groups" },
  group: { hash: `runs/${made.grouped}/steps/1/groups/0`, shows: "They part at message 3" },
  skewed: { hash: "rollouts/" + made.skewed + "?tab=timeline", shows: "its own parent" },
  prompts: { hash: `runs/${made.apo}/prompts`, shows: "Choose two candidates" },
  rollouts: { hash: "rollouts", shows: "Rollouts" },
  search: { hash: "rollouts?text=cat&mode=train&outcome=ok", shows: "rollouts?, which are all|matches? among" },
  failed: { hash: "rollouts?status=failed", shows: "what fails" },
  conversation: { hash: "rollouts/" + made.chat, shows: "A cat." },
  timeline: { hash: "rollouts/" + made.long + "?tab=timeline", shows: "step 0" },
  span: { hash: "rollouts/" + made.chat + "?tab=timeline&span=0000000000000001", shows: "gen_ai.prompt.0.role" },
  raw: { hash: "rollouts/" + made.chat + "?tab=raw", shows: "rollout_id" },
  resources: { hash: "resources", shows: "Resources" },
  workers: { hash: "workers", shows: "Workers" },
  releases: { hash: "releases", shows: "support-v2" },
  release: { hash: "releases/" + made.release, shows: "failed_tool_calls" },
  gone: { hash: "rollouts/ro-gone", shows: "There is no rollout ro-gone" },
  "resources that are gone": { hash: "resources?id=rs-gone", shows: "the store does not have it" },
  nowhere: { hash: "nowhere", shows: "There is no such view" },
};

for (const [name, view] of Object.entries(views)) {
  test(`the view ${name} shows its data, and axe finds nothing serious`, async () => {
    const { page, done } = await open(view.hash);
    await page.getByText(new RegExp(view.shows)).first().waitFor();
    await page.evaluate(axe);
    // A window is made narrower, and the system's colours change, while the page is open.
    for (const [width, colorScheme] of [[1440, "light"], [390, "dark"], [768, "light"]]) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await assert.doesNotReject(page.waitForFunction(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth),
        `${width} px: the page is wider than its window`);
      const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
      const serious = violations.filter((v) => ["serious", "critical"].includes(v.impact) || v.id === "region");
      assert.deepEqual(serious.map((v) => [v.id, v.nodes[0].html, v.nodes[0].failureSummary]), [], `${width} px ${colorScheme}`);
    }
    await done();
  });
}

test("a reader without a key signs in", async () => {
  const { page, done } = await open("rollouts", { key: "" });
  await page.getByLabel("Key").and(page.locator(":focus")).waitFor(); // whoever types at once types the key
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("did not accept this key").waitFor();
  await page.getByLabel("Key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("link", { name: made.chat }).waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })), "{}");
  await page.reload();
  await page.getByRole("link", { name: made.chat }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key").waitFor();
  await page.reload();
  await page.getByLabel("Key").waitFor();
  await done();
});

test("a sign-in that ends by itself while a page is open is told, and nothing is shown or asked until the next one", async () => {
  for (let seconds = 2; ; seconds *= 2) { // until this machine shows the page before the key expires
    const { key } = await api("keys", { method: "POST", body: JSON.stringify({ name: "short", scopes: ["read"], expire_seconds: seconds }) });
    const { page, done } = await open("rollouts", { key });
    const stream = page.waitForEvent("requestfinished", { predicate: (r) => r.url().includes("/events"), timeout: 0 }).catch(() => null); // the page may close first
    const signedIn = page.getByRole("button", { name: "Sign out" });
    await signedIn.or(page.getByLabel("Key")).waitFor();
    if (!(await signedIn.count())) {
      await done();
      continue;
    }
    await page.getByText("Your sign-in has ended").waitFor({ timeout: 1000 * seconds + 15_000 });
    await page.getByText("signed out", { exact: true }).waitFor();
    await stream;
    assert.equal(await page.getByRole("region", { name: "Rollouts" }).count() + (await signedIn.count()), 0);
    const asked = [];
    page.on("request", (r) => asked.push(r.url()));
    const [rollout] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "after the end" }] }) });
    await page.getByLabel("Key").fill(token);
    assert.deepEqual(asked, []);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("link", { name: rollout.rollout_id }).waitFor();
    assert.equal(await page.getByText("Your sign-in has ended").count(), 0);
    await api(`rollouts/${rollout.rollout_id}/cancel`, { method: "POST" });
    await done();
    return;
  }
});

test("a tab follows when another one signs out, and in again", async () => {
  const { page, done } = await open("rollouts");
  const other = await page.context().newPage();
  await other.goto(base + "#/workers");
  await other.getByText("live", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await other.getByText("Your sign-in has ended").waitFor();
  await page.getByLabel("Key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  await other.evaluate(() => dispatchEvent(new Event("focus")));
  await other.getByRole("heading", { name: "Workers" }).waitFor();
  await other.getByText("live", { exact: true }).waitFor();
  assert.equal(await other.getByLabel("Key").count(), 0);
  await done();
});

test("a tab that was hidden learns that somebody else has signed in", async () => {
  const { page, done } = await open("rollouts");
  await page.getByTitle("Signed in as root").waitFor();
  await page.evaluate(() => Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true }));
  const away = (to) => page.evaluate((to) => (window.away = to) + document.dispatchEvent(new Event("visibilitychange")), to);
  await away(true);
  const { key } = await api("keys", { method: "POST", body: JSON.stringify({ name: "somebody-else", scopes: ["read"] }) });
  await page.context().request.post(base + "v1/agl/login", { data: { key } });
  await away(false);
  await page.getByTitle("Signed in as somebody-else").waitFor();
  await done();
});

test("who could not sign out is told so", async () => {
  const { page, done } = await open("rollouts");
  await page.route("**/logout", (route) => route.fulfill({ status: 503, json: { detail: "the database is away" } }), { times: 1 });
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("You are still signed in: the database is away").waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key").waitFor();
  await done([/503/]);
});

test("a page that the store did not tell at first how one signs in asks again", async () => {
  const { page, done } = await open("workers", { key: "" });
  const away = (times) => page.route("**/v1/agl/login", (route) => (route.request().method() === "GET" ? route.fulfill({ status: 503, json: { detail: "away" } }) : route.continue()), { times });
  await away(2); // the first time, and the sign-in
  await page.reload();
  await page.getByLabel("Key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Workers" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  await away(1);
  await page.reload();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key").waitFor();
  await done([/503/]);
});

test("who signs in with a key that may not read is told so, and that the connection is not lost", async () => {
  const { key } = await api("keys", { method: "POST", body: JSON.stringify({ name: "sends only", scopes: ["ingest"] }) });
  const { page, done } = await open("", { key });
  await page.getByText("needs one of (read").waitFor();
  await page.getByText("not allowed", { exact: true }).waitFor();
  await done([/403/]);
});

test("who signs in with a browser that keeps no cookie of the store is told what to do", async () => {
  const { page, done } = await open("", { key: "" });
  await page.route("**/v1/agl/login", (route) => (route.request().method() === "POST" ? route.fulfill({ json: { id: "root", name: "root", scopes: ["admin"] } }) : route.continue()));
  await page.getByLabel("Key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("--public-url").waitFor();
  assert.equal(await page.getByText("Your sign-in has ended").count(), 0);
  await page.unroute("**/v1/agl/login");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await done();
});

test("a reader whose clock is wrong sees how long ago something was at the store", async () => {
  const [rollout] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "at the store's time" }] }) });
  for (const hours of [-30, 30]) {
    const { page, done } = await open("nowhere");
    await page.addInitScript((by) => {
      const real = Date.now;
      Date.now = () => real() + by;
    }, hours * 3_600_000);
    await page.goto(base + "#/rollouts/" + rollout.rollout_id);
    await page.reload();
    await page.getByRole("heading", { name: rollout.rollout_id }).waitFor();
    assert.match(await page.locator("time").first().innerText(), /^(just now|\d+ (s|min) ago)$/);
    await done();
  }
  await api(`rollouts/${rollout.rollout_id}/cancel`, { method: "POST" });
});

test("a page that is opened by an address with a name and a password reaches the store", async () => {
  const { page, done } = await open("runs", { key: "", address: base.replace("//", "//agl:somebody@") });
  await page.getByLabel("Key").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("region", { name: "Runs" }).waitFor();
  await page.route("**/v1/agl/runs?*", (route) => route.fulfill({ json: { items: [], total: 0 } }));
  await page.reload();
  await page.getByText("--store " + base.slice(0, -1), { exact: false }).waitFor();
  await done();
});

test("a key is made, shown with its end, and revoked", async () => {
  const { page, done } = await open("keys");
  await page.getByLabel("Name").fill("for a while");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText(/shown this once: agl_/).waitFor();
  const row = page.getByRole("row").filter({ hasText: "for a while" });
  await row.getByText("in 89 d", { exact: true }).waitFor();
  // An empty field is for ever; nothing else is.
  const create = page.getByRole("button", { name: "Create", exact: true });
  await page.getByLabel("Name").fill("for ever");
  for (const [typed, allowed] of [["0", false], ["-1", false], ["1e", false], ["0.5", true], ["", true]]) {
    await page.getByLabel("Days").fill("");
    await page.getByLabel("Days").pressSequentially(typed);
    await page.waitForFunction((allowed) => [...document.querySelectorAll(".key-form button")].find((b) => b.textContent === "Create").disabled !== allowed, allowed);
  }
  await create.click();
  await page.getByRole("row").filter({ hasText: "for ever" }).getByText("never", { exact: true }).waitFor();
  page.once("dialog", (dialog) => dialog.accept());
  await row.getByRole("button", { name: "Revoke" }).click();
  await row.getByText("revoked", { exact: true }).waitFor();
  await done();
});

test("an open page says of a key that it has expired", async () => {
  await api("keys", { method: "POST", body: JSON.stringify({ name: "for a moment", scopes: ["read"], expire_seconds: 3 }) });
  const { page, done } = await open("keys");
  const row = page.getByRole("row").filter({ hasText: "for a moment" });
  await row.getByText("expired", { exact: true }).waitFor();
  assert.equal(await row.getByRole("button", { name: "Revoke" }).count(), 0);
  await done();
});

test("who signs in at an identity provider comes back to the view", async () => {
  const { page, done } = await open("rollouts?status=queuing", { key: "" });
  await page.route("**/v1/agl/login", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), methods: ["key", "oidc"] } });
  });
  await page.route("**/v1/agl/login/oidc", async (route) => {
    await page.context().request.post(base + "v1/agl/login", { data: { key: token } });
    await route.fulfill({ status: 303, headers: { Location: base } });
  });
  await page.reload();
  await page.getByRole("link", { name: "Sign in with your organisation" }).click();
  await page.getByText("No rollout matches.").waitFor();
  assert.match(page.url(), /#\/rollouts\?status=queuing$/);
  await page.goto(base);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await done();
});

test("the overview shows calls and tokens per second, and the versions that answer, as they come", async () => {
  const { page, done } = await open("");
  const tiles = page.getByRole("region", { name: "Model calls" });
  const [task] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "called" }] }) });
  const { attempt } = await api(`rollouts/${task.rollout_id}/attempts`, { method: "POST", body: "{}" });
  const context = { trace_id: "ab".repeat(16), is_remote: false, trace_state: {} };
  const now = Date.now() / 1000;
  const spans = [...Array(30)].map((_, i) => ({
    rollout_id: task.rollout_id, attempt_id: attempt.attempt_id, sequence_id: i + 1, trace_id: context.trace_id, span_id: String(i).padStart(16, "0"), parent_id: null, name: "litellm_request",
    status: { status_code: "OK", description: null }, attributes: { "agentlightning.model.version": "<b>w</b>@7", "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 7 },
    events: [], links: [], start_time: now, end_time: now, context: { ...context, span_id: String(i).padStart(16, "0") }, parent: null, resource: { attributes: {}, schema_url: "" },
  }));
  // The rates are over ten seconds; other tests add calls of their own.
  const told = page.waitForFunction(() => {
    const seen = Object.fromEntries([...document.querySelectorAll("[aria-label='Model calls'] .tile")].map((t) => [t.lastElementChild.textContent, Number(t.firstElementChild.textContent.replaceAll(",", ""))]));
    return seen["calls per second"] >= 3 && seen["prompt tokens per second"] >= 300 && seen["reply tokens per second"] >= 21 && seen;
  }, null, { timeout: 30_000 });
  await api("spans/batch", { method: "POST", body: JSON.stringify({ spans }) });
  const seen = await (await told).jsonValue();
  await tiles.getByRole("link", { name: "<b>w</b>@7" }).waitFor();
  assert.equal(seen["calls since the store started"], (await api("statistics/calls")).calls);
  await page.waitForFunction(() => document.querySelector("[aria-label='Model calls'] b").textContent === "0", null, { timeout: 60_000 });
  await api(`rollouts/${task.rollout_id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "succeeded" }) });
  await done();
});

test("counts that were made before the last change are asked for again", async () => {
  const { page, done } = await open("workers");
  let old = 0;
  let see = () => {};
  const seen = new Promise((resolve) => (see = resolve));
  await page.route("**/statistics/rollouts", async (r) => (old++ ? (await seen, r.continue()) : r.fulfill({ contentType: "application/json", body: '{"by_status":{"failed":987654},"fresh_in":0.1}' })));
  await page.goto(base + "#/");
  await page.getByText("987,654").waitFor();
  see();
  await page.getByText("987,654").waitFor({ state: "detached" }); // nothing has happened meanwhile
  await done();
});

test("addresses that are wrong are answered, and long words break no page", async () => {
  const { page, done } = await open("rollouts/%E0%A4%A", { width: 390 });
  await page.getByText("There is no rollout %E0%A4%A.").waitFor();
  await page.goto(base + "#/rollouts?offset=999999");
  await page.getByText("There are only").waitFor();
  await page.getByRole("button", { name: "To the first page" }).click();
  await page.locator("tbody tr").first().waitFor();
  for (const list of ["resources", "runs", "workers"]) {
    await page.goto(base + `#/${list}?offset=999999`);
    await page.getByText("There are only").waitFor();
    await page.getByRole("button", { name: "To the first page" }).click();
    await page.getByText("There are only").waitFor({ state: "hidden" });
  }
  for (const offset of ["-5", "1.5", "1e30", "x"]) {
    await page.goto(base + `#/rollouts?offset=${offset}`);
    await page.locator("tbody tr").first().waitFor();
  }
  await page.goto(base + "#/rollouts?text=what?");
  await page.reload();
  await page.getByPlaceholder("in input, messages, exceptions").waitFor();
  assert.equal(await page.getByPlaceholder("in input, messages, exceptions").inputValue(), "what?");
  await page.goto(base + `#/rollouts/${made.chat}?tab=nowhere`);
  await page.getByText("A cat.").waitFor();
  await page.goto(base + `#/runs/${made.grouped}/steps/1/groups/0?shown=-9`);
  await page.locator(".sibling").nth(3).waitFor();
  await page.goto(base + `#/runs/${made.run}?compare=,${made.other},`);
  await page.getByText("Seconds by phase: seconds/train").waitFor();
  await page.goto(base + `#/runs/${made.run}/constructor`);
  await page.getByText("There is no such view.").waitFor();
  await page.goto(base + "#/rollouts/" + "x".repeat(1000));
  await page.getByText("There is no rollout xxx").waitFor();
  const [rollout] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "long words", metadata: { dropped: "x".repeat(1000) } }] }) });
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok((await wide()) <= 0);
  await page.goto(base + "#/rollouts/" + rollout.rollout_id);
  await page.getByText("Not learned from").waitFor();
  assert.ok((await wide()) <= 0);
  await api(`rollouts/${rollout.rollout_id}/cancel`, { method: "POST" });
  const long = "x".repeat(150);
  await api(`resources/${long}?keep_latest=true`, { method: "POST", body: JSON.stringify({ [long]: { resource_type: "prompt_template", template: "a", engine: "f-string" } }) });
  await page.goto(base + "#/resources?id=" + long);
  await page.getByRole("heading", { name: long }).first().waitFor();
  assert.ok((await wide()) <= 0);
  await page.setViewportSize({ width: 320, height: 568 });
  await page.route("**/v1/agl/releases", (r) => r.fulfill({ json: { items: [] } }));
  await page.goto(base + "#/releases");
  await page.getByText("agl release propose").waitFor();
  assert.ok((await wide()) <= 0);
  await done();
});

test("the page works behind a path", async () => {
  const { page, done } = await open("rollouts", { address: process.env.AGL_PAGE_PREFIX + "/" });
  await page.getByRole("link", { name: made.chat }).click();
  await page.getByText("A cat.").waitFor();
  await done();
});

test("the page of a project names it, and says that it is archived, until it is there again", async () => {
  const projects = process.env.AGL_PAGE_PROJECTS;
  const archive = async (on) => assert.ok((await fetch(projects + "/v1/agl/projects/search", { method: "POST", headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" }, body: JSON.stringify({ archived: on }) })).ok);
  const { page, done } = await open("rollouts", { address: projects + "/p/search/" });
  await page.getByText("No rollouts yet.").waitFor();
  await page.locator(".project", { hasText: "search" }).waitFor();
  assert.equal(await page.title(), "rollouts – search – agl");
  await page.setViewportSize({ width: 970, height: 900 }); // a long name leaves all views in sight
  await page.locator(".project").evaluate((e) => (e.lastChild.textContent = "abcdefghi-".repeat(4)));
  assert.ok((await page.getByRole("navigation", { name: "Views" }).evaluate((e) => e.scrollWidth - e.clientWidth)) <= 0);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)) <= 0);
  await archive(true);
  await page.getByText("There is no store at this address: the project search is archived").waitFor();
  await page.goto(projects + "/p/search/#/rollouts/ro-1");
  await page.getByRole("button", { name: "Try again" }).waitFor();
  assert.equal(await page.getByText("There is no rollout").count(), 0);
  await archive(false);
  await page.getByText("There is no rollout ro-1").waitFor();
  assert.equal(await page.getByText("is archived").count(), 0);
  await done([/404/]);
});

test("the page of a server of projects leads to them, and says to who has a key of one where to sign in", async () => {
  const address = process.env.AGL_PAGE_PROJECTS + "/";
  const { page, done } = await open("", { address });
  await page.getByRole("link", { name: "search", exact: true }).click();
  await page.locator(".project", { hasText: "search" }).waitFor();
  assert.equal(await page.getByRole("heading", { name: "Projects" }).count(), 0);
  await done();
  const stranger = await open("", { address, key: "" });
  await stranger.page.getByText(`The key of a project is accepted at the page of the project: ${address}p/NAME/`).waitFor();
  await stranger.done();
});

test("in a low window, as at a zoom of 400 %, the views are not behind the head of the page", async () => {
  const { page, done } = await open("rollouts", { width: 320 });
  await page.locator("tbody tr").first().waitFor();
  await page.setViewportSize({ width: 320, height: 256 });
  await page.evaluate(() => scrollTo(0, 400));
  await page.waitForFunction(() => document.querySelector(".top").getBoundingClientRect().bottom <= 0);
  await done();
});

test("what changes is seen without a reload, and nothing is asked while the tab is hidden", async () => {
  const { page, done } = await open("rollouts?q=&status=queuing");
  await page.getByText("No rollout matches.").waitFor();
  const [rollout] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "seen at once" }] }) });
  await page.getByRole("link", { name: rollout.rollout_id }).waitFor();
  await page.getByRole("link", { name: rollout.rollout_id }).click();
  page.once("dialog", (d) => d.accept());
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.locator("h1 .status-cancelled").waitFor();
  const deleted = await fetch(base + "v1/agl/rollouts/" + rollout.rollout_id, { method: "DELETE", headers: { Authorization: "Bearer " + token } }); // by somebody else
  assert.ok(deleted.ok);
  await page.getByText("There is no rollout " + rollout.rollout_id).waitFor();

  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  await page.getByText("paused", { exact: true }).waitFor();
  await hide(false);
  await page.getByText("live", { exact: true }).waitFor(); // though nothing has changed
  await hide(true);
  await page.getByText("paused", { exact: true }).waitFor();
  const asked = [];
  page.on("request", (r) => asked.push(r.url()));
  const [unseen] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "not seen" }] }) });
  await page.evaluate(() => new Promise((r) => setTimeout(r, 1500)));
  assert.deepEqual(asked, []);
  await hide(false);
  await page.getByText("live", { exact: true }).waitFor();
  await api(`rollouts/${unseen.rollout_id}/cancel`, { method: "POST" });
  await done();
});

test("the overview follows the latest resources, and failures and versions whose number stays", async () => {
  const publish = () => api("resources", { method: "POST", body: JSON.stringify({ prompt: { resource_type: "prompt_template", template: "a", engine: "f-string" } }) });
  const [{ rollout_id: id }] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "fails twice" }] }) });
  const fail = async (message) => {
    const { attempt } = await api(`rollouts/${id}/attempts`, { method: "POST", body: "{}" });
    await api(`rollouts/${id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "failed", metadata: { "agentlightning.outcome": { kind: "agent_error", message } } }) });
  };
  await publish();
  await fail("at first");
  const { page, done } = await open("");
  const failure = page.locator(".failures li", { hasText: id });
  await failure.getByText("at first").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  const { resources_id: latest } = await publish();
  await page.getByRole("link", { name: latest }).waitFor();
  let hold = () => {};
  const held = new Promise((resolve) => (hold = resolve));
  await page.route("**/statistics/rollouts", async (route) => (await held, route.continue())); // both changes between two looks
  await api(`rollouts/${id}`, { method: "POST", body: JSON.stringify({ status: "requeuing" }) });
  await fail("and again");
  hold();
  await failure.getByText("and again").waitFor();
  // Of tasks that were enqueued together, those that have failed last are shown.
  const tasks = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [...Array(10)].map((_, i) => ({ input: "task " + i })) }) });
  for (const { rollout_id } of tasks) {
    const { attempt } = await api(`rollouts/${rollout_id}/attempts`, { method: "POST", body: "{}" });
    await api(`rollouts/${rollout_id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "failed" }) });
  }
  await page.waitForFunction((ids) => [...document.querySelectorAll(".failures li a")].map((a) => a.textContent).join() === ids, tasks.map((t) => t.rollout_id).reverse().slice(0, 8).join());
  await done();
});

test("what is pressed stays where it is until the click, and the queue's buttons whatever happens", async () => {
  const { page, done } = await open("rollouts");
  const enqueue = async () => (await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "one more" }] }) }))[0];
  const link = page.locator("tbody tr").first().getByRole("link").first();
  const id = await link.innerText();
  await link.hover();
  await page.mouse.down();
  const told = page.waitForResponse(async (r) => /[/]rollouts[?]/.test(r.url()) && (await r.json()).items[0].rollout_id !== id);
  const added = await enqueue();
  await told;
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  await page.mouse.up();
  await page.waitForFunction((to) => location.hash === "#/rollouts/" + to, id);
  await page.goBack();
  await page.getByRole("link", { name: added.rollout_id }).waitFor(); // what came meanwhile

  await page.goto(base + "#/");
  const button = page.getByRole("button", { name: "Close the queue" });
  await button.waitFor();
  const place = await button.boundingBox();
  const chart = page.getByText("Rollouts that ended, per second");
  for (let one = added; !(await chart.isVisible()); ) {
    one ||= await enqueue();
    await api(`rollouts/${one.rollout_id}/cancel`, { method: "POST" });
    one = null;
    await chart.waitFor({ timeout: 2000 }).catch(() => {}); // what ends before the view counts is not drawn
  }
  assert.deepEqual(await button.boundingBox(), place);
  await done();
});

test("the queue is closed and opened, and a task is enqueued, as JSON or as a text", async () => {
  const { page, done } = await open("");
  page.on("dialog", (d) => d.accept());
  const queue = page.locator("section", { hasText: "Queue" });
  await queue.getByText("open", { exact: true }).waitFor();
  await queue.getByRole("button", { name: "Close the queue" }).click();
  await queue.getByText("closed", { exact: true }).waitFor();
  assert.equal((await api("statistics")).queue_closed, true);
  await api("queues/rollouts/open", { method: "POST" }); // by somebody else
  await queue.getByRole("button", { name: "Close the queue" }).waitFor();
  await page.getByText("Enqueue a task").click();
  for (const [task, input] of [['{"question": "2 + 2"}', { question: "2 + 2" }], ["<b>plain words</b>", "<b>plain words</b>"]]) {
    await page.getByLabel("Task").fill(task);
    await page.getByRole("combobox", { name: /^Mode/ }).selectOption("val");
    await page.getByRole("button", { name: "Enqueue" }).click();
    await page.waitForFunction(() => document.querySelector(".enqueue textarea").value === "");
    const id = await page.getByRole("status").locator("a").innerText();
    const rollout = await api("rollouts/" + id);
    assert.deepEqual([rollout.input, rollout.mode, rollout.status], [input, "val", "queuing"]);
    await api(`rollouts/${id}/cancel`, { method: "POST" });
  }
  // Every digit is kept, and what is typed before the store has answered.
  let answer;
  const answered = new Promise((go) => (answer = go));
  await page.route("**/enqueue", async (r) => (await answered, r.continue()));
  await page.getByLabel("Task").fill('{"id": 12345678901234567890}');
  const sent = page.waitForRequest("**/enqueue");
  await page.getByRole("button", { name: "Enqueue" }).click();
  assert.match((await sent).postData(), /"input":\{"id": 12345678901234567890\}/);
  await page.getByLabel("Task").fill("the next one");
  const before = await page.getByRole("status").locator("a").innerText();
  answer();
  await page.waitForFunction((id) => document.querySelector(".enqueue a").textContent !== id, before);
  assert.equal(await page.getByLabel("Task").inputValue(), "the next one");
  await api(`rollouts/${await page.getByRole("status").locator("a").innerText()}/cancel`, { method: "POST" });
  await done();
});

test("a session that was not learned from says why, and leads to the others", async () => {
  const dropped = async (input, reason) => (await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input, metadata: { dropped: reason } }] }) }))[0].rollout_id;
  const ids = [await dropped("one session", "withheld"), await dropped("another", "withheld"), await dropped("odd", "<b>odd</b>")];
  const { page, done } = await open("rollouts/" + ids[0]);
  await page.getByText("Not learned from: the redaction program did not let it pass.").waitFor();
  await page.getByRole("link", { name: "All for this reason" }).click();
  await page.getByText("2 in all").waitFor();
  await page.getByRole("link", { name: ids[1] }).waitFor();
  await page.goto(base + "#/rollouts/" + ids[2]);
  await page.getByText("Not learned from: the run dropped it: <b>odd</b>.").waitFor();
  for (const id of ids) await api(`rollouts/${id}/cancel`, { method: "POST" });
  await done();
});

test("rollouts are found by label, reward, outcome, version, attribute and what was said, and the address says by which", async () => {
  const { page, done } = await open("rollouts");
  const rows = page.getByRole("region", { name: "Rollouts" }).locator("tbody tr");
  await rows.first().waitFor();
  await page.getByLabel("Label", { exact: true }).fill("run");
  await page.getByText("name=value", { exact: true }).waitFor();
  await page.getByLabel("Label", { exact: true }).fill("run=" + made.grouped);
  await page.keyboard.press("Enter");
  await page.getByText("16 in all").waitFor();
  await page.getByLabel("Reward from").fill("0.5");
  await page.keyboard.press("Enter");
  await page.waitForURL(/min=0.5/);
  await page.getByRole("button", { name: "Reward", exact: true }).click();
  await page.waitForURL(/sort=reward/);
  await page.waitForFunction(() => [...document.querySelectorAll("tbody tr td:nth-child(5)")].map((td) => td.textContent).join() === "2,1,1,1,1,1,1,1,0.5");
  await page.reload();
  await page.getByText("9 in all").waitFor();
  // What was said, in any case.
  await page.getByText("What they say and how they ended").click();
  await page.getByLabel("Text", { exact: true }).fill("IT IS ABOUT");
  await page.keyboard.press("Enter");
  await page.getByText("1 match among").waitFor();
  assert.equal(await rows.count(), 1);
  await page.getByRole("button", { name: "Remove all filters" }).click();
  await page.getByRole("checkbox", { name: "timeout" }).check();
  await page.getByText(/^3 matches among/).waitFor();
  await page.getByRole("checkbox", { name: "timeout" }).uncheck();
  await page.getByLabel("Attribute", { exact: true }).fill("gen_ai.request.model=seer");
  await page.keyboard.press("Enter");
  await page.getByText(/^1 match among/).waitFor(); // the row is in the list of all, too
  await page.getByRole("link", { name: made.chat }).waitFor();
  assert.equal(await rows.count(), 1);
  await page.goto(base + "#/rollouts?version=seer");
  await page.getByRole("link", { name: made.chat }).waitFor();
  // In pages by key: each of the run's calls says this.
  const seen = new Set();
  await page.goto(base + "#/rollouts?label=run%3D" + made.run + "&outcome=ok");
  for (;;) {
    await page.getByText(/matches among/).waitFor();
    const ids = await rows.locator("a").allInnerTexts();
    for (const id of ids) assert.ok(!seen.has(id) && seen.add(id), id + " is there twice");
    const on = page.getByRole("link", { name: "Search older ones" });
    if (!(await on.count())) break;
    await on.click();
    await page.waitForFunction((first) => document.querySelector("tbody a")?.textContent !== first, ids[0]);
  }
  const all = await api("rollouts?limit=1&status_in=succeeded&label=run%3D" + made.run);
  assert.equal(seen.size, all.total);
  await page.goto(base + "#/rollouts?text=%3Cscript%3Ewindow.hacked");
  await page.getByRole("link", { name: made.hostile }).waitFor();
  await page.goto(base + "#/rollouts?text=nobody%20said%20this");
  await page.getByText("No rollout matches.").waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await done();
});

test("the conversation shows what is new in each call, in order", async () => {
  const { page, done } = await open("rollouts/" + made.chat);
  await page.getByText("A cat.").waitFor();
  const words = await page.locator(".conversation").innerText();
  const order = ["Be brief.", "What is on it?", "image at https://elsewhere.example", "look", "reward 0.25", "a cat", "A cat.", "reward 0.75"];
  let at = -1;
  for (const word of order) {
    const next = words.indexOf(word, at + 1);
    assert.ok(next > at, `${word} comes after ${words.slice(0, at + 1)}\n in\n${words}`);
    at = next;
  }
  assert.equal(words.split("Be brief.").length, 2, "the second call repeats the first one's messages");
  await page.locator(".reply").last().getByRole("button", { name: "tokens" }).click();
  await page.locator(".tokens > span").nth(2).waitFor();
  assert.deepEqual(await page.locator(".tokens > span").evaluateAll((all) => all.map((e) => e.textContent + ":" + e.className)), ["A:p5", " cat:p1", ".:p4"]);
  // What a step has computed of them.
  const tokens = page.locator(".tokens > span");
  const coloured = async (by) => {
    await page.getByRole("group", { name: "Colour tokens by" }).getByRole("button", { name: by }).click();
    await page.waitForURL("**by=" + by);
    return tokens.evaluateAll((all) => all.map((e) => e.className + " " + e.title.replace(/:.*/, "")));
  };
  assert.deepEqual(await coloured("ratio"), ["q0 ratio 1", "q3 ratio 2.718", "n3 ratio 0.1353"]);
  assert.deepEqual(await coloured("mask"), ["q1 trained on", "n3 left out by the correction of the step", "q1 trained on"]);
  assert.deepEqual(await coloured("advantage"), ["q2 advantage 0.5", "n3 advantage -2", "q0 advantage 0"]);
  await page.getByText("trained on in step 7, advantage -1.5").waitFor();
  assert.equal(await page.locator("img.picture").evaluate((e) => e.naturalWidth), 1);
  await done();
});

test("a reader whose language has a comma before decimals does not take them for thousands", async () => {
  const post = (path, body) => api(path, { method: "POST", body: JSON.stringify(body) });
  await post("runs", { run_id: "ru-decimals", name: "decimals" });
  await post("runs/ru-decimals/metrics", [{ step: 1, values: { loss: 1.234, kl: 1234 } }, { step: 2, values: { loss: 2.5e-9, kl: -0.5 } }]);
  const { page, done } = await open("runs/ru-decimals", { locale: "de-DE" });
  const step = (n) => page.getByRole("region", { name: "Steps of the run" }).getByRole("row").filter({ has: page.getByRole("link", { name: n, exact: true }) });
  await step("1").getByText("1,234", { exact: true }).waitFor();
  await step("1").getByText("1.234", { exact: true }).waitFor();
  await step("2").getByText("2.5e-9", { exact: true }).waitFor();
  await step("2").getByText("-0,5", { exact: true }).waitFor();
  await done();
});

test("integers that JavaScript rounds are shown as they are stored", async () => {
  const { page, done } = await open("rollouts/" + made.chat + "?tab=raw");
  const digits = ["12345678901234567890", "-9007199254740993", '"seed": 9007199254740993'];
  for (const part of [".input .code", ".with-side .code"]) {
    const shown = await page.locator(part).first().innerText();
    assert.deepEqual(digits.filter((d) => !shown.includes(d)), [], shown);
  }
  await page.goto(base + "#/rollouts");
  await page.getByText('"seed":9007199254740993').first().waitFor();
  await done();
});

test("of a conversation of a thousand calls its beginning and its end are shown, and it is read again only when it goes on", async () => {
  const [task] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "a long conversation" }] }) });
  const { attempt } = await api(`rollouts/${task.rollout_id}/attempts`, { method: "POST", body: "{}" });
  const add = (from, to) => api("spans/batch", { method: "POST", body: JSON.stringify({ spans: [...Array(to - from)].map((_, i) => {
    const span_id = String(from + i).padStart(16, "0");
    return { rollout_id: task.rollout_id, attempt_id: attempt.attempt_id, sequence_id: from + i + 1, trace_id: "ab".repeat(16), span_id, parent_id: null, name: "litellm_request", status: { status_code: "OK", description: null },
      attributes: { "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "question " + (from + i), "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "answer" },
      events: [], links: [], start_time: from + i, end_time: from + i + 1, context: { trace_id: "ab".repeat(16), span_id, is_remote: false, trace_state: {} }, parent: null, resource: { attributes: {}, schema_url: "" } };
  }) }) });
  await add(0, 1000);
  const { page, done } = await open("rollouts/" + task.rollout_id);
  const calls = page.locator(".call");
  await page.getByRole("button", { name: "Show more of the 800 between" }).waitFor();
  await calls.first().getByText("question 0", { exact: true }).waitFor();
  await calls.last().getByText("question 999", { exact: true }).waitFor();
  assert.equal(await calls.count(), 200);
  const read = [];
  page.on("request", (r) => /[/]spans[?].*limit=1000/.test(r.url()) && read.push(r.url()));
  for (let polls = 0; polls < 2; polls++) await page.waitForResponse((r) => /[/]spans[?].*limit=1$/.test(r.url()));
  assert.deepEqual(read, []);
  await add(1000, 1001);
  await page.getByText("question 1000", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Show more of the 801 between" }).click();
  await page.getByText("question 300", { exact: true }).waitFor();
  await api(`rollouts/${task.rollout_id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "succeeded" }) });
  await done();
});

// longConversation adds a conversation of some turns, of which call other is another's and in call edited an early message is another one. Its
// answers have tokens, and the last call a reward.
async function longConversation(turns, { other, edited, metadata }) {
  const [task] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "turns", mode: "train", metadata }] }) });
  const { attempt } = await api(`rollouts/${task.rollout_id}/attempts`, { method: "POST", body: "{}" });
  const span = (sequence, name, attributes, parent = null) => {
    const context = { trace_id: "ab".repeat(16), span_id: String(sequence).padStart(16, "0"), is_remote: false, trace_state: {} };
    return { rollout_id: task.rollout_id, attempt_id: attempt.attempt_id, sequence_id: sequence, trace_id: context.trace_id, span_id: context.span_id, parent_id: parent, name, status: { status_code: "OK", description: null },
      attributes, events: [], links: [], start_time: sequence, end_time: sequence + 1, context, parent: null, resource: { attributes: {}, schema_url: "" } };
  };
  const history = [["system", "Be brief. " + "x".repeat(300)]];
  let spans = [span(1, "agent", {})];
  const send = async () => (await api("spans/batch", { method: "POST", body: JSON.stringify({ spans }) }), (spans = []));
  for (let turn = 0; turn < turns; turn++) {
    history.push(["user", `question ${turn} ` + "y".repeat(300)]);
    let said = history;
    if (turn === other) said = [["system", "You are another one."], ["user", "other question"]];
    if (turn === edited) said = history.map((m, i) => (i === 1 ? ["user", "another first question"] : m));
    const attributes = { "gen_ai.request.model": "seer", "agentlightning.model.version": "v7", "gen_ai.usage.prompt_tokens": 10 * turn, "gen_ai.usage.completion_tokens": 2, prompt_token_ids: JSON.stringify([...Array(10 * turn).keys()]),
      "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "answer " + turn, "logprobs.content": '[{"token":"answer","logprob":-0.01},{"token":"!","logprob":-3}]' };
    said.forEach(([role, content], i) => Object.assign(attributes, { [`gen_ai.prompt.${i}.role`]: role, [`gen_ai.prompt.${i}.content`]: content }));
    for (let i = 0; i < 35; i++) attributes[`gen_ai.request.functions.${i}.name`] = "tool-" + i;
    spans.push(span(2 * turn + 2, "litellm_request", attributes, "0000000000000001"), span(2 * turn + 3, "tool " + turn, {}, "0000000000000001"));
    history.push(["assistant", "answer " + turn]);
    if (turn % 30 === 29) await send();
  }
  spans.push(span(2 * turns + 2, "agentlightning.annotation", { "agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.75 }));
  await send();
  return { id: task.rollout_id, path: `rollouts/${task.rollout_id}/attempts/${attempt.attempt_id}`, span, add: (s) => (spans.push(s), send()) };
}

for (const old of [false, true]) {
  const turns = old ? 40 : 240;
  test(`a conversation of ${turns} turns is shown${old ? " by a store that returns whole spans only" : ", and read without what its calls repeat"}`, async () => {
    const [other, edited] = [turns - 10, turns - 5];
    const made = await longConversation(turns, { other, edited });
    const { page, done } = await open("workers");
    await page.getByRole("heading", { name: "Workers" }).waitFor();
    if (old) await page.route("**/v1/agl/spans?**", (r) => r.continue({ url: r.request().url().replaceAll(/&attribute_names=[^&]*/g, "") }));
    const bytes = [];
    page.on("response", (r) => r.url().includes("/spans?") && bytes.push(r.body().then((b) => b.length, () => 0)));
    const read = async () => (await Promise.all(bytes)).reduce((a, b) => a + b, 0);
    await page.goto(base + "#/rollouts/" + made.id);
    const calls = page.locator(".call");
    await page.locator(".reward").getByText("0.75").waitFor();
    await page.getByText(`${turns} calls · ${2 * turns + 2} spans`).waitFor();
    const shown = old ? turns : 199; // and the reward
    const texts = () => calls.evaluateAll((all) => all.map((c) => [...c.querySelectorAll(".message .text")].map((e) => e.textContent.replace(/ ?[xy]{300}/, ""))));
    await page.waitForFunction((n) => document.querySelectorAll(".call").length === n && document.querySelectorAll(".call .loading").length === 0, shown);
    const asked = (i) => (i ? [`question ${i}`, `answer ${i}`] : ["Be brief.", "question 0", "answer 0"]);
    const numbers = [...Array(turns).keys()].filter((i) => old || i < 100 || i > turns - 100);
    const all = Object.fromEntries((await texts()).map((t, i) => [numbers[i], t]));
    for (const i of numbers) {
      if (i === other) assert.deepEqual(all[i], ["You are another one.", "other question", "answer " + i]);
      else if (i === other + 1 || i === edited || i === edited + 1) assert.equal(all[i].length, 2 * i + 3, "call " + i);
      else assert.deepEqual(all[i], asked(i), "call " + i);
    }
    assert.equal(all[edited][1], "another first question");
    const last = calls.last();
    await last.getByText(`${(10 * (turns - 1)).toLocaleString("en-US")} → 2 tokens`).waitFor();
    await last.getByText("version v7").waitFor();
    await last.getByText("tool-34").waitFor();
    await last.getByRole("button", { name: "tokens" }).click();
    await last.locator(".tokens > span").getByText("answer").waitFor();
    await page.getByRole("tab", { name: "Timeline" }).click();
    await page.locator(".row", { hasText: "tool 2" }).first().waitFor();
    await page.locator(".timeline-rows").evaluate((e) => (e.scrollTop = e.scrollHeight));
    await page.locator(".row .chip").getByText("0.75").waitFor();
    const whole = await (await fetch(base + `v1/agl/spans?rollout_id=${made.id}`, { headers: { Authorization: "Bearer " + token } })).text();
    if (!old) assert.ok((await read()) < whole.length / 6, `${await read()} bytes of ${whole.length} were read`);
    await page.getByRole("tab", { name: "Conversation" }).click();
    await last.getByRole("button", { name: "earlier messages" }).click();
    await last.getByText("question 0 ").waitFor();
    assert.equal((await texts()).at(-1).length, 2 * turns + 1);
    // What comes later is read alone.
    bytes.length = 0;
    await made.add(made.span(2 * turns + 3, "agentlightning.annotation", { "agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.5 }));
    await page.locator(".reward").getByText("0.5", { exact: true }).waitFor();
    assert.ok((await read()) < 10_000, `${await read()} bytes were read again`);
    // The panel has all of a span.
    await last.getByRole("button", { name: "call " }).click();
    const panel = page.getByRole("complementary", { name: "Span" });
    for (const name of ["prompt_token_ids", `gen_ai.prompt.${turns}.content`, "gen_ai.request.functions.34.name"]) await panel.getByRole("rowheader", { name, exact: true }).waitFor();
    await page.getByRole("tab", { name: "Raw" }).click();
    const more = await page.locator(".with-side .code .more").innerText();
    assert.ok(Number(more.replace(/\D/g, "")) > 0.9 * whole.length, more);
    await api(made.path, { method: "POST", body: JSON.stringify({ status: "succeeded" }) });
    await done();
  });
}

test("siblings with long conversations are read without what their calls repeat", async () => {
  const ids = [];
  for (let sample = 0; sample < 2; sample++) ids.push(await longConversation(150, { other: 140 + sample, metadata: { run: made.grouped, step: 9, group: 1, sample } }));
  const { page, done } = await open("workers");
  await page.getByRole("heading", { name: "Workers" }).waitFor();
  const bytes = [];
  page.on("response", (r) => r.url().includes("/spans?") && bytes.push(r.body().then((b) => b.length, () => 0)));
  await page.goto(base + `#/runs/${made.grouped}/steps/9/groups/1`);
  await page.getByText(`They part at message ${2 + 2 * 140}.`).waitFor();
  await page.getByText("281 messages in common").waitFor();
  for (const [sample, id] of ids.entries()) {
    const texts = await page.getByRole("region", { name: `Sibling ${sample + 1}` }).locator(".message .text").allInnerTexts();
    if (sample === 0) assert.deepEqual(texts.slice(0, 3).map((t) => t.trim()), ["You are another one.", "other question", "answer 140"]);
    assert.equal(texts.at(-1).trim(), "answer 149");
  }
  const read = (await Promise.all(bytes)).reduce((a, b) => a + b, 0);
  const whole = await (await fetch(base + `v1/agl/spans?rollout_id=${ids[0].id}`, { headers: { Authorization: "Bearer " + token } })).text();
  assert.ok(read < (2 * whole.length) / 3, `${read} bytes of ${2 * whole.length} were read`);
  for (const { path } of ids) await api(path, { method: "POST", body: JSON.stringify({ status: "succeeded" }) });
  await done();
});

test("what calls add to each other is read as whole calls say it, also where conversations alternate, and a long one only once", async () => {
  const { page, done } = await open("workers");
  const mistakes = await page.evaluate(async () => {
    const { entries, same } = await import("./lib/span.js");
    const { added } = await import("./lib/messages.js");
    const mistakes = [];
    // What is new in each call, of whole calls.
    const conversation = (spans) => {
      let known = [];
      return entries(spans).map((call) => {
        let repeated = 0;
        while (repeated < known.length && repeated < call.prompt.length && same(known[repeated], call.prompt[repeated])) repeated++;
        if (repeated < known.length - 1) repeated = 0; // another conversation, or an edited one: all of it is shown
        known = [...call.prompt, ...call.replies.slice(0, 1)];
        return { ...call, repeated };
      });
    };
    // Each step is a call: of which conversation, and how many messages it adds before its reply; of an edited one the first is another.
    const check = async (name, steps, most) => {
      const histories = [[], [], []];
      const spans = steps.map(([of, adds, edited], n) => {
        const history = histories[of];
        for (let i = 0; i < adds; i++) history.push(["user", `${of} ${n} ${i}`]);
        if (edited) history[0] = ["system", "edited " + n];
        const attributes = { "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "reply " + n };
        history.forEach(([role, text], i) => Object.assign(attributes, { [`gen_ai.prompt.${i}.role`]: role, [`gen_ai.prompt.${i}.content`]: text }));
        history.push(["assistant", "reply " + n]);
        return { span_id: String(n), name: "litellm_request", attributes, start_time: n, end_time: n, status: {} };
      });
      let messages = 0;
      const read = async ({ id, names, offset = 0, limit }) => ({ items: spans.filter((s) => !id || s.span_id === id).slice(offset, offset + limit).map((s) => {
        const attributes = Object.fromEntries(Object.entries(s.attributes).filter(([k]) => names.some((n) => k === n || (n.endsWith("*") && k.startsWith(n.slice(0, -1))))));
        messages += Object.keys(attributes).filter((k) => k.endsWith(".content")).length;
        return { ...s, attributes };
      }) });
      const known = new Map();
      for await (const _ of added(spans, spans, new Set(spans.map((s) => s.span_id)), known, read));
      for (const { span, prompt, repeated, replies } of conversation(spans)) {
        const its = known.get(span.span_id);
        if (JSON.stringify([its.repeated, its.prompt, its.replies]) !== JSON.stringify([repeated, prompt.slice(repeated), replies])) mistakes.push(`${name}: call ${span.span_id}: ${its.repeated} repeated, ${its.prompt.length} new, want ${repeated} of ${prompt.length}`);
      }
      if (messages > most) mistakes.push(`${name}: ${messages} messages were read, want at most ${most}`);
    };
    const times = (n, step) => Array.from({ length: n }, () => step);
    await check("one after the other", [...times(12, [0, 1]), ...times(12, [1, 2]), ...times(30, [0, 1])], 2000);
    await check("a long one after short ones", [...times(6, [0, 1]), [1, 700], ...times(20, [1, 1])], 4000);
    await check("alternating", times(60, 0).map((_, n) => [n * n % 3, 1 + (n * 7) % 5]), 5000);
    await check("edited", times(60, 0).map((_, n) => [0, 2, n % 13 === 5]), 2500);
    await check("many at once", times(12, 0).map((_, n) => [n % 5 === 4 ? 1 : 0, n % 3 ? 1 : 130]), 6000);
    return mistakes;
  });
  assert.deepEqual(mistakes, []);
  await done();
});

test("a rollout of ten thousand spans has few rows in the document, and each can be reached", async () => {
  const { page, done } = await open("rollouts/" + made.long + "?tab=timeline");
  // Before all are there the page says "5,000 of 10,000 spans", and its end is another one.
  await page.locator(".timeline-tools").getByText("10,000 spans over").waitFor();
  assert.ok((await page.locator(".row").count()) < 120);
  await page.locator(".timeline-rows").evaluate((e) => (e.scrollTop = e.scrollHeight));
  await page.getByText("step 9999").waitFor();
  await page.getByRole("button", { name: "Collapse all" }).click();
  await page.locator(".timeline-rows").evaluate((e) => (e.scrollTop = 0));
  await page.getByText("+9,999").waitFor(); // the browser tells of a scroll with the next frame
  assert.equal(await page.locator(".row").count(), 1);
  // A key that is held walks on, though browsers take few changes of the address in a short time.
  await page.getByRole("button", { name: "Expand all" }).click();
  await page.evaluate(() => (history.replaceState = () => {}));
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press("j");
    await page.locator(".row.selected").getByText("step " + i, { exact: true }).waitFor();
    assert.match(await page.getByRole("tree").evaluate((tree) => document.getElementById(tree.getAttribute("aria-activedescendant")).innerText), new RegExp("step " + i)); // what a screen reader says
  }
  await page.evaluate(() => delete history.replaceState);
  await page.keyboard.press("j");
  await page.waitForURL(/span=0000000000000004/);
  await done();
});

test("spans of two clocks are shown", async () => {
  const { page, done } = await open("rollouts/" + made.skewed + "?tab=timeline");
  await page.locator(".row", { hasText: "ends before it starts" }).getByText("-3.00 s").waitFor();
  assert.equal(await page.locator(".row").count(), 6);
  assert.equal(await page.locator(".row", { hasText: "without a start" }).locator(".row-time").textContent(), "–");
  await page.getByRole("tab", { name: "Conversation" }).click();
  await page.locator(".call", { hasText: "still open" }).locator("header").getByText("–", { exact: true }).waitFor();
  await done();
});

test("ten thousand spans are painted in a few rows, however many pages they come in", async (t) => {
  const { page, done } = await open("workers");
  await page.getByRole("heading", { name: "Workers" }).waitFor();
  await page.evaluate(() => {
    window.rows = 0;
    const watch = new MutationObserver((changes) => {
      for (const change of changes) for (const node of change.addedNodes) if (node.querySelectorAll) window.rows += node.querySelectorAll(".row").length + node.matches(".row");
      if (!document.querySelector(".timeline-tools")?.textContent.includes("10,000 spans over")) return;
      watch.disconnect();
      requestAnimationFrame(() => requestAnimationFrame(() => (window.painted = performance.now())));
    });
    watch.observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await page.goto(base + "#/rollouts/" + made.long + "?tab=timeline");
  await page.waitForFunction(() => window.painted, null, { polling: 50 });
  const [rows, ms] = await page.evaluate(() => [window.rows, window.painted - Math.max(...performance.getEntriesByType("resource").filter((e) => e.name.includes("/spans?")).map((e) => e.responseEnd))]);
  t.diagnostic(`painted ${Math.round(ms)} ms after the last of them had arrived, which tells nothing on a machine that does other things`);
  assert.ok(rows > 0 && rows < 120, `${rows} rows were made`);
  await done();
});

test("hostile output does not run, and is shown as it is", async () => {
  const { page, done } = await open("rollouts/" + made.hostile);
  await page.getByText("<script>window.hacked=1</script>", { exact: false }).first().waitFor();
  await page.getByText("⟨202E⟩evil", { exact: false }).first().waitFor();
  await page.getByText("⟨001B⟩[31mred", { exact: false }).first().waitFor();
  await page.getByRole("button", { name: "tokens" }).click();
  await page.getByText("more of 98,000 tokens").waitFor();
  await page.getByRole("button", { name: "mask" }).click();
  await page.getByText("No step has said what it computed of this call").waitFor();
  for (const tab of ["Timeline", "Raw"]) {
    await page.getByRole("tab", { name: tab }).click();
    await page.getByText("<script>", { exact: false }).first().waitFor();
  }
  await page.goto(base + "#/rollouts");
  await page.getByText("onerror=", { exact: false }).first().waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await done();
});

test("a model that replies with a list of objects is quoted, and a list of parts is read", async () => {
  const said = '[{"city": "Paris"}, {"city":  "Rome"}]';
  const [rollout, ...parts] = await Promise.all([said, '[{"type":"text","text":"In parts."}]', '[{"type":"move","x":1}]'].map((content) => reply(content)));
  const { page, done } = await open("rollouts/" + rollout);
  await page.locator(".message.reply").getByText(said, { exact: true }).waitFor();
  await page.goto(base + "#/rollouts/" + parts[0]);
  await page.locator(".message.reply").getByText("In parts.", { exact: true }).waitFor();
  await page.goto(base + "#/rollouts/" + parts[1]);
  await page.locator(".message.reply").getByText('[{"type":"move","x":1}]', { exact: true }).waitFor();
  await done();
});

// reply makes a rollout with one call, and a reward of three tenths as a computer adds them up.
async function reply(content) {
  const { rollout_id: id, attempt: { attempt_id: attempt } } = await api("rollouts", { method: "POST", body: JSON.stringify({ input: "a reply" }) });
  const span = { rollout_id: id, attempt_id: attempt, trace_id: "ef".repeat(16), parent_id: null, status: { status_code: "OK", description: null }, events: [], links: [], start_time: 1, end_time: 2, context: null, parent: null, resource: { attributes: {}, schema_url: "" } };
  const attributes = { "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "a question", "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": content };
  await api("spans", { method: "POST", body: JSON.stringify({ ...span, sequence_id: 1, span_id: "1".padStart(16, "0"), name: "litellm_request", attributes }) });
  await api("spans", { method: "POST", body: JSON.stringify({ ...span, sequence_id: 2, span_id: "2".padStart(16, "0"), name: "agentlightning.annotation", attributes: { "agentlightning.reward.0.value": 0.1 + 0.2 } }) });
  await api(`rollouts/${id}/attempts/${attempt}`, { method: "POST", body: JSON.stringify({ status: "succeeded" }) });
  return id;
}

test("arrows scroll the text that has the focus, and select spans elsewhere", async () => {
  const id = await reply(Array(400).fill("word").join("\n"));
  const { page, done } = await open(`rollouts/${id}?tab=timeline&span=0000000000000001`);
  const value = page.getByRole("row", { name: "gen_ai.completion.0.content" }).locator(".text");
  await value.focus();
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction(() => document.activeElement.scrollTop > 0);
  await page.locator("#span-0000000000000001.selected").waitFor();
  await page.getByRole("tree").focus();
  await page.keyboard.press("ArrowDown");
  await page.locator("#span-0000000000000002.selected").waitFor();
  await done();
});

test("the details of a span are in a narrow window, too", async () => {
  const id = await reply("word ".repeat(3000));
  const { page, done } = await open("rollouts/" + id, { width: 600 });
  await page.locator(".message.reply").waitFor();
  await page.getByRole("button", { name: "call 1", exact: true }).click();
  await page.getByRole("complementary", { name: "Span" }).getByText("gen_ai.prompt.0.role").waitFor();
  const panel = await page.getByRole("complementary", { name: "Span" }).elementHandle();
  await assert.doesNotReject(page.waitForFunction((e) => e.getBoundingClientRect().top > 0 && e.getBoundingClientRect().bottom <= 900, panel), "they are not in the window");
  await page.getByRole("tab", { name: "Timeline" }).click();
  await page.locator(".chip").getByText("0.3", { exact: true }).waitFor(); // and not 0.30000000000000004
  await done();
});

test("an exception that is an event of a span is in the conversation, once however many spans it ended, and in the details", async () => {
  const { rollout_id, attempt } = await api("rollouts", { method: "POST", body: JSON.stringify({ input: "what is raised" }) });
  const shared = { rollout_id, attempt_id: attempt.attempt_id, trace_id: "ef".repeat(16), attributes: { n: 1 }, links: [], start_time: 10, end_time: 12, context: null, parent: null, resource: { attributes: {}, schema_url: "" } };
  const raised = (type, message, timestamp) => ({ name: "exception", timestamp, attributes: { "exception.type": type, "exception.message": message, "exception.stacktrace": "File <b>agent.py</b>, line 3", "exception.escaped": "False" } });
  const failed = { status_code: "ERROR", description: "<b>boom</b>" };
  const spans = [
    { name: "agent", parent_id: null, status: failed, events: [raised("ValueError", "<b>boom</b>", 11.5)] },
    { name: "tool", parent_id: "000000000000ee01", status: failed, events: [raised("TimeoutError", "slow", 10.25), { name: "retry", timestamp: 10.5, attributes: { "wait.seconds": 3 } }, raised("ValueError", "<b>boom</b>", 11)] },
    { name: "caught", parent_id: "000000000000ee01", status: { status_code: "OK", description: null }, events: [raised("KeyError", "expected", null)] },
  ];
  for (const [i, span] of spans.entries()) await api("spans", { method: "POST", body: JSON.stringify({ ...shared, ...span, sequence_id: i + 1, span_id: "000000000000ee0" + (i + 1) }) });
  await api(`rollouts/${rollout_id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "failed" }) });
  const { page, done } = await open("rollouts/" + rollout_id);
  const shown = page.locator(".conversation .message.bad");
  await shown.first().waitFor();
  assert.equal(await shown.count(), 1);
  await shown.getByText("<b>boom</b>", { exact: true }).waitFor();
  await shown.getByText("stack trace").click();
  await shown.getByText("File <b>agent.py</b>, line 3").waitFor();
  await shown.getByRole("button", { name: "tool" }).click();
  const panel = page.getByRole("complementary", { name: "Span" });
  await panel.getByRole("heading", { name: "retry after 500 ms" }).waitFor();
  await panel.getByRole("row", { name: "wait.seconds 3" }).waitFor();
  assert.deepEqual(await panel.locator("section h4").allInnerTexts(), ["exception after 250 ms", "TimeoutError", "exception after 1.00 s", "ValueError", "retry after 500 ms"]);
  await page.getByRole("tab", { name: "Timeline" }).click();
  await page.locator(".row", { hasText: "caught" }).click();
  await panel.getByText("KeyError").waitFor();
  await panel.getByRole("row", { name: "exception.escaped False" }).waitFor();
  await done();
});

test("joiners are left where they spell an emoji or a word, and are shown by their numbers elsewhere", async () => {
  const written = "👩‍💻 🏳️‍🌈 می‌خواهم क्‍ष";
  const [rollout] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: written + " pay\u200dpal, ok\u061cno" }] }) });
  const { page, done } = await open("rollouts/" + rollout.rollout_id);
  await page.getByText(written + " pay⟨200D⟩pal, ok⟨061C⟩no").waitFor();
  await api(`rollouts/${rollout.rollout_id}/cancel`, { method: "POST" });
  await done();
});

test("attributes of any type are shown, and long names break no page", async () => {
  const { page, done } = await open("rollouts/" + made.typed, { width: 390 });
  await page.getByText("tools: [1,2]").waitFor();
  assert.equal(await page.locator(".call").count(), 4);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)) <= 0);
  await page.route("**/v1/agl/workers?*", (r) => r.fulfill({ json: { total: 1, items: [{ worker_id: "a\u202eb", status: "idle", heartbeat_stats: { cpu_usage_pct: "high", mem_pct: [1] } }] } }));
  await page.goto(base + "#/workers");
  await page.getByText("a⟨202E⟩b").waitFor();
  const { rollout_id: id } = await api("rollouts", { method: "POST", body: JSON.stringify({ input: "an odd outcome" }) });
  const { items: [attempt] } = await api(`rollouts/${id}/attempts`);
  await api(`rollouts/${id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "failed", metadata: { "agentlightning.outcome": { kind: "agent_error", message: { code: 7 } } } }) });
  await page.goto(base + "#/rollouts/" + id);
  await page.getByText('{"code":7}').first().waitFor();
  await done();
});

test("what the browser does not let the page copy is told", async () => {
  const { page, done } = await open(`rollouts/${made.chat}?tab=raw`);
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await page.getByText("The browser did not allow it").waitFor();
  await done();
});

test("a view that cannot be shown says so, and leaves the others", async () => {
  const { page, done } = await open("runs");
  await page.route("**/v1/agl/workers?*", (r) => r.fulfill({ json: {} }));
  await page.goto(base + "#/workers");
  await page.getByText("This cannot be shown").waitFor();
  await page.unroute("**/v1/agl/workers?*");
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByRole("region", { name: "Workers" }).waitFor();
  await page.goto(base + "#/rollouts");
  await page.locator("tbody tr").first().waitFor();
  await done([/undefined/]);
});

test("a rating of a rollout, and of a call, is kept as a reward of a human, and is no sign of life of the agent", async () => {
  const { page, done } = await open("rollouts/" + made.failed);
  await page.getByText("ValueError: boom").waitFor();
  await page.getByRole("spinbutton").fill("0.5");
  await page.getByRole("button", { name: "Rate", exact: true }).click();
  await page.locator(".reward").getByText("0.5").waitFor();
  await page.getByText("by human").waitFor();
  const { items } = await api("spans?rollout_id=" + made.failed);
  assert.deepEqual(items.map((s) => [s.name, s.attributes["agentlightning.reward.0.value"], s.attributes["agentlightning.reward_source"]]), [["agentlightning.annotation", 0.5, "human"]]);
  // One whose runner went away stays as it ended.
  await page.goto(base + "#/rollouts/" + made.lost);
  await page.getByRole("group", { name: "Rate this attempt" }).getByRole("button", { name: "Bad" }).click();
  await page.getByText("by human").waitFor();
  const [lost] = (await api(`rollouts/${made.lost}/attempts`)).items;
  assert.deepEqual([lost.status, lost.reward.value], ["unresponsive", 0]);
  assert.ok(lost.end_time);
  // A call, and why somebody else gave what they gave.
  await page.goto(base + "#/rollouts/" + made.chat);
  await page.getByRole("group", { name: "Rate call 3" }).getByRole("button", { name: "Good" }).click();
  await page.locator(".reward", { hasText: "of call 3" }).getByText("by human").waitFor();
  await api(`rollouts/${made.chat}/rewards`, { method: "POST", body: JSON.stringify({ value: 0.25, span: "0000000000000001", source: "judge", message: "<b>too vague</b>" }) });
  await page.locator(".reward", { hasText: "of call 1" }).getByText("<b>too vague</b>").waitFor();
  assert.equal((await api("rollouts/" + made.chat)).attempt.reward.value, 0.75); // that of the whole attempt
  await done();
});

test("an attempt took as long as it was under way, and a rollout in the queue has not begun", async () => {
  const post = (path, body) => api(path, { method: "POST", body: JSON.stringify(body) });
  const [waiting] = await post("queues/rollouts/enqueue", { rollouts: [{ input: "waits" }] });
  const first = await post("rollouts", { input: "tried twice" });
  const path = "rollouts/" + first.rollout_id;
  await post(`${path}/attempts/${first.attempt.attempt_id}`, { status: "failed" });
  await post(path, { status: "requeuing" });
  await post(path + "/attempts", {});
  const { page, done } = await open("rollouts/" + waiting.rollout_id);
  const took = (value) => page.locator(".facts div").filter({ hasText: "Took" }).filter({ hasText: value }).waitFor();
  await took("–");
  await page.goto(base + "#/" + path);
  await took("running");
  await page.getByRole("button", { name: "attempt 1" }).click();
  await took(/\d m?s$/);
  for (const r of [waiting, first]) await post(`rollouts/${r.rollout_id}/cancel`);
  await done();
});

test("a rollout is run again, and a failed request is told", async () => {
  const { page } = await open("rollouts/" + made.failed);
  page.on("dialog", (d) => d.accept());
  await page.getByRole("button", { name: "Retry" }).click();
  await page.locator("h1 .status-requeuing").waitFor();
  await page.route("**/cancel", (r) => r.fulfill({ status: 409, contentType: "application/json", body: '{"detail":"it is too late"}' }));
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("alert").getByText("it is too late").waitFor();
  await page.context().close(); // the browser reports the 409 to the console
});

test("rows are walked by keys", async () => {
  const { page, done } = await open("rollouts?sort=start_time&order=desc");
  await page.locator("tbody tr").nth(2).waitFor();
  const third = await page.locator("tbody tr").nth(2).locator("a").innerText();
  for (const key of ["j", "j", "j", "k", "j"]) await page.keyboard.press(key);
  assert.equal(await page.locator("tr.at a").innerText(), third);
  const [above] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "comes in above" }] }) });
  await page.getByRole("link", { name: above.rollout_id }).waitFor();
  assert.equal(await page.locator("tr.at a").innerText(), third);
  await api(`rollouts/${above.rollout_id}/cancel`, { method: "POST" });
  await page.keyboard.press("Enter");
  await page.locator("h1").getByText(third).waitFor();
  const shown = await page.getByRole("navigation", { name: "Views" }).getByRole("link").allInnerTexts();
  for (const [i, name] of shown.entries()) {
    await page.keyboard.press(String(i + 1));
    await page.locator("nav a[aria-current]").getByText(name, { exact: true }).waitFor();
  }
  const help = page.getByRole("dialog", { name: "Shortcuts" });
  for (let i = 0; i < 8; i++) { // a focus that comes back late is seen in every third
    await page.keyboard.press("?");
    await help.waitFor();
    await page.keyboard.press("Escape");
    await help.waitFor({ state: "hidden" });
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "MAIN"); // as before
  }
  await page.keyboard.press("?");
  await help.waitFor();
  await page.keyboard.press("3");
  await page.getByRole("heading", { name: "Rollouts" }).waitFor();
  await help.waitFor({ state: "hidden" });
  await done();
});

test("the pages of a list are in its own order, whatever it is sorted by", async () => {
  const { page, done } = await open("rollouts?sort=reward&order=asc");
  await page.getByRole("button", { name: "Next", exact: true }).click();
  await page.waitForURL("**offset=50");
  await page.getByRole("button", { name: "Previous", exact: true }).click();
  await page.waitForURL("**order=asc");
  await done();
});

test("who comes back to a list finds the place where they were", async () => {
  const { page, done } = await open("rollouts?sort=start_time&order=asc");
  const row = page.locator("tbody tr").nth(30);
  await row.waitFor();
  await page.evaluate(() => scrollTo(0, 700));
  await page.waitForFunction(() => scrollY === 700);
  await row.locator("a").click();
  await page.getByRole("tab", { name: "Raw" }).waitFor();
  await page.waitForFunction(() => scrollY === 0);
  await page.goBack();
  await page.waitForFunction(() => scrollY === 700);
  // The second of two changes is not in the address yet when the reader leaves.
  const last = await page.evaluate(() => {
    const [first, second] = document.querySelectorAll("th button");
    for (const element of [first, second, document.querySelector("tbody a")]) element.click();
    return second.innerText.trim();
  });
  await page.getByRole("tab", { name: "Raw" }).waitFor();
  await page.goBack();
  await page.locator("th[aria-sort=descending]", { hasText: last }).waitFor();
  // The browser tells of a scroll with the next frame, which may come after a link.
  await page.goto(base + "#/rollouts?sort=start_time&order=asc");
  await row.waitFor();
  await page.waitForFunction(() => scrollY === 0);
  await page.evaluate(() => {
    scrollTo(0, 650);
    document.querySelector("tbody a").click();
  });
  await page.getByRole("tab", { name: "Raw" }).waitFor();
  await page.goBack();
  await page.waitForFunction(() => scrollY === 650);
  await page.evaluate(() => scrollTo(0, 700));
  await page.waitForFunction(() => scrollY === 700);
  await page.getByRole("link", { name: "Rollouts", exact: true }).click();
  await page.waitForFunction(() => scrollY === 0);
  for (let i = 0; i < 10; i++) {
    await page.goBack();
    await page.waitForFunction(() => scrollY === 700);
    await page.goForward(); // to another order of the list, which is as long
    await page.waitForFunction(() => scrollY === 0);
  }
  await done();
});

test("two versions of resources are compared", async () => {
  for (const template of ["Answer: {question}\nBe brief.", "Answer: {question}\nTake your time."]) {
    await api("resources", { method: "POST", body: JSON.stringify({ prompt: { resource_type: "prompt_template", template, engine: "f-string" } }) });
  }
  const { page, done } = await open("resources");
  await page.getByText("Take your time.").waitFor();
  await page.locator(".versions li").nth(1).getByRole("button", { name: "compare" }).click();
  await page.locator(".diff .added").getByText("Take your time.").waitFor();
  assert.equal(await page.locator(".diff .removed").textContent(), "- removed: Be brief.");
  await done();
});

test("in a narrow window the version of resources that is chosen is in view", async () => {
  const items = [...Array(50)].map((_, i) => ({ resources_id: "rs-" + i, version: 1, create_time: 1, update_time: 1, resources: { a: { resource_type: "x" } } }));
  const { page, done } = await open("workers", { width: 390 });
  await page.route("**/v1/agl/resources?*", (r) => r.fulfill({ json: { total: 50, items } }));
  await page.route("**/v1/agl/resources/*", (r) => r.fulfill({ json: items[1] }));
  await page.goto(base + "#/resources");
  await page.getByRole("button", { name: "rs-1", exact: true }).click();
  await page.getByRole("heading", { name: "rs-1" }).waitFor();
  await assert.doesNotReject(page.waitForFunction(() => [...document.querySelectorAll("h1, h2, h3")].find((h) => h.textContent.includes("rs-1"))?.getBoundingClientRect().bottom < 900), "its heading is below the window");
  await done();
});

test("with a contrast theme the bars of spans, tokens, and what is chosen are seen", async () => {
  const { page, done } = await open(`rollouts/${made.chat}?tab=timeline&span=0000000000000001`);
  await page.emulateMedia({ forcedColors: "active" });
  const style = (selector) => page.locator(selector).first().evaluate((e) => ({ ground: getComputedStyle(e).backgroundColor, outline: getComputedStyle(e).outlineStyle }));
  const { ground } = await style("body");
  assert.notEqual((await style(".bar")).ground, ground);
  for (const chosen of [".row.selected", "button[aria-selected=true]", "nav a[aria-current]"]) assert.equal((await style(chosen)).outline, "solid", chosen);
  await page.getByRole("tab", { name: "Conversation" }).click();
  await page.getByRole("button", { name: "tokens" }).last().click();
  assert.notEqual((await style(".tokens .p5")).ground, ground);
  await done();
});

// between is a server between the page and the store; what arrives for lost() does not reach the page.
async function between(t, lost = () => false) {
  const server = createServer((request, response) => {
    const upstream = forward(new URL(request.url, base), { method: request.method, headers: request.headers, agent: false }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.on("data", (data) => lost(request) || response.write(data));
      answer.on("end", () => response.end());
    });
    upstream.on("error", () => response.destroy());
    response.on("close", () => upstream.destroy());
    request.pipe(upstream);
  });
  t.after(() => (server.closeAllConnections(), server.close()));
  const port = await new Promise((ready) => server.listen(0, "127.0.0.1", () => ready(server.address().port)));
  return { server, port };
}

test("a stream of events that has become silent is opened again", async (t) => {
  let latest = null;
  let silent = null;
  const { port } = await between(t, (request) => request.url.includes("/events") && (latest = request) === silent);
  const { page, done } = await open("workers", { address: `http://127.0.0.1:${port}/` });
  await page.clock.install();
  await page.reload();
  await page.getByText("live", { exact: true }).waitFor();
  silent = latest;
  const again = page.waitForRequest((r) => r.url().includes("/events"));
  await page.clock.runFor(30_000);
  await again;
  await page.getByText("live", { exact: true }).waitFor();
  await done();
});

test("a page whose network has changed, or whose machine has slept, does not say live before it has heard from the store again", async (t) => {
  let away = false;
  const { port } = await between(t, (request) => away && request.url.includes("/events"));
  const { page, done } = await open("workers", { address: `http://127.0.0.1:${port}/` });
  await page.clock.install();
  await page.reload();
  for (const change of [() => page.evaluate(() => dispatchEvent(new Event("offline"))), () => page.evaluate(() => dispatchEvent(new Event("online"))), () => page.clock.fastForward(20_000)]) {
    away = false;
    await page.getByText("live", { exact: true }).waitFor();
    away = true;
    await change();
    await page.getByText("connecting", { exact: true }).waitFor();
    away = false;
    await page.clock.fastForward(30_000); // nobody answers this one
  }
  await page.getByText("live", { exact: true }).waitFor();
  await done();
});

test("what waits for an answer that is lost is asked again with the stream of events, and does not keep the rest", async () => {
  const { page, done } = await open("nowhere");
  await page.getByText("live", { exact: true }).waitFor();
  let lost = 0;
  await page.route("**/v1/agl/workers?*", (r) => lost++ && r.continue());
  const asked = page.waitForRequest((r) => r.url().includes("/workers?"));
  await page.evaluate(() => (location.hash = "#/workers"));
  await asked;
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.getByRole("table").waitFor();

  await page.clock.install();
  await page.evaluate(() => (location.hash = "#/"));
  await page.getByRole("heading", { name: "Model calls" }).waitFor();
  await page.route("**/v1/agl/statistics/calls", () => {}); // no answer
  const held = page.waitForRequest("**/v1/agl/statistics/calls");
  await page.evaluate(() => { // counted in the page: what the browser says of a request may come later than the answer of the clock
    const send = fetch;
    window.waiting = 0;
    window.fetch = (url, ...rest) => ((window.waiting += String(url).endsWith("/statistics/calls")), send(url, ...rest));
  });
  await held;
  await page.clock.runFor(20_000);
  const waiting = await page.evaluate(() => window.waiting);
  assert.ok(waiting < 6, `${waiting} requests wait`); // each for ten seconds of a clock that is not the page's
  await done();
});

test("a conversation whose answers are lost is read again after a sign of it", async () => {
  const { page, done } = await open("nowhere");
  await page.getByText("live", { exact: true }).waitFor();
  const lost = new Set();
  await page.route("**/v1/agl/spans?*", (r) => (lost.has(r.request().url()) ? r.continue() : lost.add(r.request().url())));
  await page.evaluate((id) => (location.hash = "#/rollouts/" + id), made.chat);
  await page.evaluate(() => setInterval(() => dispatchEvent(new Event("online")), 4000));
  await page.locator(".conversation").getByText("A cat.").first().waitFor();
  assert.ok(lost.size > 1, `${lost.size} answers were lost`);
  await done();
});

test("a view that is slow to load goes on while the tab is hidden and comes back", async () => {
  const { page, done } = await open("nowhere");
  await page.getByText("live", { exact: true }).waitFor();
  let held = null;
  let asked = 0;
  await page.route("**/v1/agl/workers?*", (r) => (asked++ ? r.continue() : (held = r)));
  const request = page.waitForRequest((r) => r.url().includes("/workers?"));
  await page.evaluate(() => (location.hash = "#/workers"));
  await request;
  const turn = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await turn(true);
  await page.getByText("paused", { exact: true }).waitFor();
  await turn(false);
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(asked, 1);
  await held.continue();
  await page.getByRole("table").waitFor();
  await done();
});

test("durations are in the unit to which they are rounded", async () => {
  const { page, done } = await open("nowhere");
  const worded = await page.evaluate(async (all) => {
    const { seconds } = await import("./lib/format.js");
    return all.map(seconds);
  }, [0, 0.00099, 0.0009997, 0.00996, 0.9994, 0.9997, 9.996, 59.94, 59.97, 119.7, 3599.6, 3600, -0.9997]);
  assert.deepEqual(worded, ["0 µs", "990 µs", "1.0 ms", "10 ms", "999 ms", "1.00 s", "10.0 s", "59.9 s", "1 min 0 s", "2 min 0 s", "1 h 0 min", "1 h 0 min", "-1.00 s"]);
  await done();
});

test("on paper long texts are not cut off where a window scrolls them", async () => {
  const { page, done } = await open("rollouts/" + made.chat + "?tab=raw");
  const text = page.locator(".text.code").last();
  await text.waitFor();
  await text.evaluate((e) => (e.textContent = "a line\n".repeat(200)));
  const cut = () => text.evaluate((e) => e.scrollHeight - e.clientHeight);
  assert.ok((await cut()) > 0);
  await page.emulateMedia({ media: "print" });
  assert.equal(await cut(), 0);
  await done();
});

test("the heartbeats of workers that do nothing else are seen", async () => {
  const beat = (host) => api("workers/silent", { method: "POST", body: JSON.stringify({ heartbeat_stats: { host } }) });
  await beat("one");
  const { page, done } = await open("workers");
  await page.clock.install();
  await page.reload();
  const row = page.getByRole("row").filter({ hasText: "silent" });
  await row.getByText("one", { exact: true }).waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  await beat("two");
  await page.clock.fastForward(15_000);
  await row.getByText("two", { exact: true }).waitFor();
  await done();
});

test("the store's end and its return are seen", async (t) => {
  const { server, port } = await between(t);
  const { page } = await open("workers", { address: `http://127.0.0.1:${port}/` });
  await page.getByRole("table").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  const closed = new Promise((done) => server.close(done));
  server.closeAllConnections();
  await closed;
  await page.getByText("connection lost", { exact: true }).waitFor();
  assert.ok(await page.getByRole("table").isVisible()); // what was seen stays
  await new Promise((ready) => server.listen(port, "127.0.0.1", ready));
  await page.getByText("live", { exact: true }).waitFor();
  await page.context().close();
});

test("what failed to load is loaded again, and is not taken for nothing", async () => {
  const { page } = await open("workers");
  await page.getByRole("table").waitFor();
  let fails = true;
  const broken = (r) => (fails ? r.fulfill({ status: 502, contentType: "text/html", body: "<html>Bad Gateway</html>" }) : r.continue());
  await page.route("**/v1/agl/spans?**", broken);
  await page.route("**/v1/agl/runs?**", broken);
  for (const [hash, shows] of [["rollouts/" + made.chat, "A cat."], ["runs", "grpo"]]) {
    fails = true;
    await page.goto(base + "#/" + hash);
    await page.getByRole("alert").getByText("a server in front of it answered 502").waitFor();
    assert.equal(await page.getByText("No spans.").count(), 0);
    fails = false;
    await page.getByText(shows).first().waitFor();
    await page.getByRole("alert").waitFor({ state: "hidden" });
  }
  await page.context().close(); // the browser reports the 502 to the console
});
