// What a reader sees and does of runs, their groups and prompts, and releases.
import assert from "node:assert/strict";
import { api, base, made, open, test } from "./browser.mjs";

test("a run's curves follow it, and runs are drawn over each other", async () => {
  const { page, done } = await open("runs");
  await page.getByRole("link", { name: made.other }).click();
  await page.getByText("No metrics yet.").waitFor();
  await api(`runs/${made.other}/metrics`, { method: "POST", body: JSON.stringify([1, 2, 3].map((step) => ({ step, values: { reward_mean: step / 10, "<b>odd</b>\u202e": 1 } }))) });
  const steps = page.getByRole("region", { name: "Steps of the run" });
  await steps.getByRole("cell", { name: "0.3", exact: true }).waitFor();
  await page.locator("figure.chart canvas").first().waitFor();
  assert.equal(await page.locator("figure.chart").count(), 1);
  await page.getByRole("button", { name: "Show 1 more metrics" }).click();
  await page.getByText("<b>odd</b>⟨202E⟩").first().waitFor();
  await api(`runs/${made.other}/metrics`, { method: "POST", body: JSON.stringify({ step: 4, values: { reward_mean: 0.875 } }) });
  await steps.getByRole("cell", { name: "0.875" }).waitFor();
  assert.equal(await steps.locator("tbody tr").count(), 4);
  await api(`runs/${made.other}/metrics`, { method: "POST", body: JSON.stringify({ step: 2, values: { reward_mean: 0.625 } }) }); // late
  await steps.getByRole("cell", { name: "0.625" }).waitFor();

  await page.getByText("Compare with other runs").click();
  await page.getByRole("checkbox", { name: made.run }).check();
  await page.waitForURL("**/#/runs/" + made.other + "?compare=" + made.run);
  const chart = page.locator("figure.chart", { hasText: "Training reward: reward_mean" });
  await chart.locator(".u-legend .u-label", { hasText: made.run }).waitFor();
  await chart.locator(".u-legend .u-label", { hasText: made.other }).waitFor();
  const drawn = await chart.locator("canvas").evaluate((c) => new Set(new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer)).size);
  assert.ok(drawn > 3, "the chart has " + drawn + " colours");
  await page.goBack();
  await page.getByRole("heading", { name: "Runs" }).waitFor();
  await page.getByRole("checkbox", { name: "Compare other" }).check();
  await page.getByRole("checkbox", { name: "Compare calculator" }).check();
  await page.getByRole("link", { name: "Show 2 runs over each other" }).click();
  await page.locator("figure.chart", { hasText: "Training reward: reward_mean" }).waitFor();
  await done();
  // One that is gone takes no others with it.
  const { page: left } = await open(`runs/${made.other}?compare=ru-gone,${made.run}`);
  await left.getByText("The run ru-gone cannot be compared").waitFor();
  await left.locator("figure.chart .u-legend .u-label", { hasText: made.run }).first().waitFor();
  await left.context().close(); // the browser reports the 400 to the console
});

test("the list of runs tells the reward of training from that of validation", async () => {
  const { page, done } = await open("workers");
  const run = (name, metrics) => ({ run_id: "ru-" + name, name, algorithm: "grpo", status: "running", step: 1, metrics, metadata: {}, error: "", start_time: 1, update_time: 1, end_time: null });
  const items = [run("new", { rollouts: 0, reward_mean: 0, "validation/pass_rate": 0.25 }), run("old", { rollouts: 8, reward_mean: 0.75, "validation/pass_rate": 0.25 })];
  await page.route("**/v1/agl/runs?*", (r) => r.fulfill({ json: { total: 2, items } }));
  await page.goto(base + "#/runs");
  await page.getByRole("row", { name: "ru-old" }).waitFor();
  const heads = await page.getByRole("columnheader").allTextContents();
  const cells = async (name) => (await page.getByRole("row", { name }).getByRole("cell").allTextContents()).filter((_, i) => ["Reward", "Validation"].includes(heads[i]));
  assert.deepEqual([await cells("ru-new"), await cells("ru-old")], [["–", "0.25"], ["0.75", "0.25"]]);
  await done();
});

test("an open list says of a run that it was not heard from", async () => {
  const { page, done } = await open("workers");
  const heard = Date.now() / 1000 - 597;
  await page.route("**/v1/agl/runs?*", (r) => r.fulfill({ json: { total: 1, items: [{ run_id: "ru-1", name: "", algorithm: "grpo", status: "running", step: 1, metrics: {}, metadata: {}, error: "", start_time: heard, update_time: heard, end_time: null }] } }));
  await page.goto(base + "#/runs");
  await page.getByText("not heard from for 10 min").waitFor();
  await done();
});

test("runs that are older than the newest ones are compared, too, and can be left out again", async () => {
  const { page, done } = await open("workers");
  await page.route("**/v1/agl/runs?limit=200", async (r) => {
    const answer = await r.fetch().then((a) => a.json());
    await r.fulfill({ json: { ...answer, total: 300, items: answer.items.filter((run) => run.run_id !== made.run) } });
  });
  await page.goto(base + `#/runs/${made.other}?compare=${made.run}`);
  await page.getByText(/^The newest \d+ of 300 runs[.]/).waitFor();
  await page.getByRole("checkbox", { name: made.run, checked: true }).waitFor();
  await page.getByRole("link", { name: "Choose among all" }).click();
  await page.waitForURL(`**/#/runs?compare=${made.other}%2C${made.run}`);
  await page.getByRole("checkbox", { name: "Compare calculator", checked: true }).waitFor();
  await page.goBack();
  await page.getByRole("checkbox", { name: "calculator " + made.run, checked: true }).click();
  await page.waitForURL("**/#/runs/" + made.other);
  await done();
});

test("metrics of runs that are no longer shown are not kept", async () => {
  const { page, done } = await open("runs/" + made.other);
  const steps = page.getByRole("region", { name: "Steps of the run" });
  await steps.locator("tbody tr").nth(3).waitFor();
  await page.goto(base + "#/runs/" + made.run);
  await page.locator("figure.chart", { hasText: "Seconds by phase" }).waitFor();
  const again = page.waitForRequest((r) => r.url().includes(made.other + "/metrics"));
  await page.goto(base + "#/runs/" + made.other);
  assert.doesNotMatch((await again).url(), /from=/);
  await steps.locator("tbody tr").nth(3).waitFor();
  await done();
});

test("curves of values that are odd are drawn, and many runs fit into a small window", async () => {
  const odd = [];
  for (const name of ["what is too large to be true", "flat", "a run with a name so long that no line of a small window holds it"]) {
    const { run_id: id } = await api("runs", { method: "POST", body: JSON.stringify({ name, algorithm: "mine" }) });
    await api(`runs/${id}/metrics`, { method: "POST", body: JSON.stringify([1, 2, 3].map((step) => ({ step, values: { reward_mean: name === "flat" ? 0 : [1e308, 0.5, -1e308][step - 1] } }))) });
    odd.push(id);
  }
  const { page, done } = await open("runs/" + odd[0]);
  const chart = page.locator("figure.chart", { hasText: "Training reward" });
  const drawn = () => chart.locator("canvas").evaluate((c) => {
    const blue = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    const at = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    at.fillStyle = blue;
    at.fillRect(0, 0, 1, 1);
    const [line] = new Uint32Array(at.getImageData(0, 0, 1, 1).data.buffer);
    return new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer).filter((p) => p === line).length;
  });
  await chart.locator("canvas").waitFor();
  assert.ok((await drawn()) > 20, "the line of huge values is not drawn");
  // The values of a single curve are read as those of several.
  const box = await chart.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await chart.locator(".u-legend .u-value").getByText("0.5", { exact: true }).waitFor();
  await page.goto(base + `#/runs/${odd[1]}`);
  await page.locator("h1").getByText("flat").waitFor();
  await chart.locator("canvas").waitFor();
  assert.ok((await drawn()) > 20);
  await page.emulateMedia({ colorScheme: "dark" }); // drawn in the colours of that from now on
  for (let frames = 0; (await drawn()) <= 20; frames++) assert.ok(frames < 100, "the line kept its colour"), await page.evaluate(() => new Promise(requestAnimationFrame));
  await done();
  // Many metrics are drawn some at a time.
  await api(`runs/${odd[1]}/metrics`, { method: "POST", body: JSON.stringify({ step: 4, values: Object.fromEntries([...Array(100)].map((_, i) => ["m/" + "x".repeat(i) + i, i])) }) });
  const many = await open(`runs/${odd[1]}`);
  await many.page.getByRole("button", { name: "Show 40 of 100 more metrics" }).click();
  await many.page.getByRole("button", { name: "Show 40 of 60 more metrics" }).click();
  await many.page.getByRole("button", { name: "Show 20 of 20 more metrics" }).click();
  await many.page.locator("figure.chart").nth(100).locator("canvas").waitFor();
  assert.ok((await many.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)) <= 0);
  await many.done();
  const narrow = await open(`runs/${odd[0]}?compare=${odd.slice(1)}`, { width: 390 });
  await narrow.page.locator(".u-legend .u-label", { hasText: odd[2] }).first().waitFor();
  assert.ok((await narrow.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)) <= 0);
  await narrow.done();
});

test("the numbers of a chart's axis and legend tell values apart, and runs of one step and of one colour are seen", async () => {
  const made = [];
  const curves = { kl: (s) => s * 1e-5, entropy: (s) => 2 + s * 1e-6, prompt_tokens: (s) => 12_000_000 + s * 1_234_567, grad_norm: (s) => s * 1e-9, loss: (s) => -s * 1e20 };
  for (let i = 0; i < 10; i++) {
    const { run_id: id } = await api("runs", { method: "POST", body: JSON.stringify({ name: "number " + i, algorithm: "mine" }) });
    const steps = [...Array(i === 0 ? 20 : i === 1 ? 1 : 2)].map((_, s) => ({ step: s, values: Object.fromEntries(Object.entries(curves).map(([name, of]) => [name, of(s)])) }));
    await api(`runs/${id}/metrics`, { method: "POST", body: JSON.stringify(steps) });
    made.push(id);
  }
  const { page, done } = await open("nowhere");
  await page.addInitScript(() => {
    window.written = new Map(); // by canvas: the numbers beside its lines, and where they begin
    window.dashes = new Map();
    const proto = CanvasRenderingContext2D.prototype;
    const { fillText, setLineDash } = proto;
    proto.fillText = function (text, x, y) {
      if (this.textAlign === "right") (written.get(this.canvas) ?? written.set(this.canvas, new Map()).get(this.canvas)).set(text, x - this.measureText(text).width);
      return fillText.call(this, text, x, y);
    };
    proto.setLineDash = function (dash) {
      (dashes.get(this.canvas) ?? dashes.set(this.canvas, new Set()).get(this.canvas)).add(dash.join());
      return setLineDash.call(this, dash);
    };
  });
  await page.goto(base + "#/runs/" + made[0]);
  await page.reload();
  for (const [title, numbers] of [["KL", ["0", "0.0001"]], ["Entropy", ["2", "2.00001", "2.00002"]], ["Tokens", ["20,000,000", "30,000,000"]], ["Gradient norm", ["0", "1e-8"]], ["Loss", ["0", "-1e+21"]]]) {
    const canvas = page.locator("figure.chart", { has: page.getByText(title, { exact: true }) }).locator("canvas");
    await canvas.waitFor();
    await page.waitForFunction((c) => written.get(c)?.size > 1, await canvas.elementHandle());
    const found = await canvas.evaluate((c) => [...written.get(c)]);
    for (const n of numbers) assert.ok(found.some(([text]) => text === n), `${title}: ${n} is not among ${JSON.stringify(found)}`);
    for (const [text, left] of found) assert.ok(left >= 0, `${title}: ${text} begins at ${left}`);
  }
  const kl = page.locator("figure.chart", { has: page.getByText("KL", { exact: true }) });
  const box = await kl.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + box.width - 2, box.y + box.height / 2);
  await kl.locator(".u-legend .u-value").getByText("0.00019", { exact: true }).waitFor();
  // The second run has one step, which no line joins; the ninth has the colour of the first.
  const green = () => kl.locator("canvas").evaluate((c) => {
    const at = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    at.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--good").trim();
    at.fillRect(0, 0, 1, 1);
    const [line] = new Uint32Array(at.getImageData(0, 0, 1, 1).data.buffer);
    return new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer).filter((p) => p === line).length;
  });
  assert.equal(await green(), 0);
  await page.goto(base + `#/runs/${made[0]}?compare=${made[1]}`);
  await kl.locator(".u-legend .u-label", { hasText: "number 1" }).waitFor();
  for (let frames = 0; (await green()) === 0; frames++) assert.ok(frames < 100, "the run of one step is not drawn"), await page.evaluate(() => new Promise(requestAnimationFrame));
  await page.goto(base + `#/runs/${made[0]}?compare=${made.slice(1)}`);
  await kl.locator(".u-legend .u-label", { hasText: "number 8" }).waitFor();
  assert.ok(await kl.locator("canvas").evaluate((c) => dashes.get(c).has("8,4")), "the lines of one colour are alike");
  await done();
});

test("questions of users are answered within four clicks from the overview", async () => {
  const [failed] = await api("queues/rollouts/enqueue", { method: "POST", body: JSON.stringify({ rollouts: [{ input: "a question that fails" }] }) });
  const { attempt } = await api(`rollouts/${failed.rollout_id}/attempts`, { method: "POST", body: "{}" });
  const metadata = { "agentlightning.outcome": { kind: "agent_error", message: "ValueError: why" } };
  await api(`rollouts/${failed.rollout_id}/attempts/${attempt.attempt_id}`, { method: "POST", body: JSON.stringify({ status: "failed", metadata }) });
  const { page, done } = await open("");
  let clicks = 0;
  const click = (locator) => (clicks++, locator.click());
  const ask = async (question, answer) => {
    clicks = 0;
    await page.goto(base + "#/");
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    await answer();
    assert.ok(clicks <= 4, `${question}: ${clicks} clicks`);
  };
  const view = (name) => click(page.getByRole("navigation", { name: "Views" }).getByRole("link", { name, exact: true }));
  await ask("Why did this rollout fail?", async () => {
    await click(page.getByRole("link", { name: failed.rollout_id }));
    await page.getByText("ValueError: why").waitFor();
  });
  await ask("Which prompt won, and by how much?", async () => {
    await view("Runs");
    await click(page.getByRole("link", { name: made.apo, exact: true }));
    await click(page.getByRole("link", { name: "Its prompts" }));
    await page.getByText(/(won|the seed stays):\s+its gain over the seed|Nothing better than the seed was found/).waitFor();
  });
  await ask("What did siblings do differently?", async () => {
    await view("Runs");
    await click(page.getByRole("link", { name: made.run, exact: true }));
    await click(page.getByRole("region", { name: "Steps of the run" }).getByRole("link", { name: "1", exact: true }));
    await click(page.getByRole("region", { name: "Groups of the step" }).getByRole("link").first());
    await page.getByText(/They part at message|They said the same/).waitFor();
  });
  await ask("Is one run better than another?", async () => {
    await view("Runs");
    await click(page.getByRole("checkbox", { name: "Compare other" }));
    await click(page.getByRole("checkbox", { name: "Compare calculator" }));
    await click(page.getByRole("link", { name: "Show 2 runs over each other" }));
    await page.locator("figure.chart", { hasText: "Training reward: reward_mean" }).waitFor();
  });
  await ask("Which calls were slow?", async () => {
    await view("Rollouts");
    await click(page.getByRole("link", { name: made.chat }));
    await page.locator(".call header").getByText("400 ms").nth(1).waitFor();
  });
  await done();
});

test("a point of a run's curve opens the groups of its step, and a group shows where its rollouts part", async () => {
  const { page, done } = await open("runs/" + made.run);
  await page.getByRole("region", { name: "Steps of the run" }).getByRole("link", { name: "1", exact: true }).waitFor(); // the page is complete
  const chart = page.locator("figure.chart", { hasText: "Training reward" });
  const box = await chart.locator(".u-over").boundingBox();
  await page.mouse.move(box.x + 2, box.y + box.height / 2);
  await page.mouse.click(box.x + 2, box.y + box.height / 2);
  await page.waitForURL(`**/#/runs/${made.run}/steps/1`);
  const groups = page.getByRole("region", { name: "Groups of the step" });
  await groups.locator("tbody tr").nth(15).waitFor();
  assert.equal(await groups.locator("tbody tr").count(), 16);
  // What the run has counted itself.
  const { items } = await api(`runs/${made.run}/metrics?from=1&to=1`);
  const teaching = await groups.getByRole("cell", { name: "yes", exact: true }).count();
  assert.equal(teaching, items[0].values.groups_used);
  assert.equal(await groups.getByRole("cell", { name: "all rewards that count are equal" }).count(), items[0].values.groups_skipped);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/steps/1/groups/0`);
  const siblings = page.getByRole("region", { name: "Siblings", exact: true }).locator("tbody tr");
  await siblings.nth(7).waitFor();
  assert.equal(await siblings.count(), 8);
  await page.getByRole("link", { name: "Group after" }).click();
  await page.waitForURL(`**/steps/1/groups/1`);
  await page.getByRole("heading", { name: "What they said" }).waitFor();
  await page.goto(base + `#/runs/${made.run}/steps/1/groups/99`);
  await page.getByText("There is no group 99").waitFor();
  await page.goto(base + `#/runs/${made.run}/steps/77`);
  await page.getByText("No training rollouts in this step.").waitFor();
  await page.goto(base + `#/runs/${made.run}/steps/x`);
  await page.getByText("There is no such step.").waitFor();
  await done();
});

test("the siblings of a group stand side by side, with rewards, advantages and tokens", async () => {
  const { page, done } = await open(`runs/${made.grouped}/steps/1/groups/0`);
  await page.getByText("They part at message 3.").waitFor();
  const rows = page.getByRole("region", { name: "Siblings", exact: true }).locator("tbody tr");
  const cells = await rows.evaluateAll((all) => all.map((tr) => [...tr.children].map((td) => td.textContent)));
  // Rewards 1, 0, 0.5 and a timeout: mean 0.5, standard deviation √(1/6).
  const scale = Math.sqrt(1 / 6) + 1e-4;
  assert.deepEqual(cells.map((c) => c[1]), ["1", "0", "0.5", "does not count: timeout"]);
  assert.deepEqual(cells.map((c) => c[2]), [String(Number((0.5 / scale).toPrecision(4))), String(Number((-0.5 / scale).toPrecision(4))), "0", "–"]);
  assert.deepEqual(cells.slice(0, 2).map((c) => [c[3], c[4]]), [["10", "3"], ["10", "6"]]);
  await page.getByText("Advantages are computed here").waitFor();
  const columns = page.getByRole("region", { name: "Siblings side by side" }).locator(".sibling");
  assert.equal(await columns.count(), 4);
  assert.match(await columns.nth(0).locator(".parts").innerText(), /It is 4\./);
  assert.match(await columns.nth(1).locator(".parts").innerText(), /<b>It is 5<\/b>⟨202E⟩/);
  assert.doesNotMatch(await columns.nth(0).innerText(), /What is 2 \+ 2/);
  await page.getByText("2 messages in common").click();
  await page.getByText("What is 2 + 2?").last().waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // The reward of a judge, which comes later, is seen.
  await page.goto(base + `#/runs/${made.judged}/steps/1/groups/1`);
  await page.getByText("not trained on: all rewards that count are equal").waitFor();
  const link = await page.getByRole("region", { name: "Siblings", exact: true }).locator("tbody a").first().innerText();
  await api(`rollouts/${link}/rewards`, { method: "POST", body: JSON.stringify({ value: 0.25, source: "judge" }) });
  await page.getByRole("cell", { name: "0.25" }).waitFor();
  await page.getByText("Mean reward 0.625").waitFor();
  // Advantages that an algorithm wrote down.
  await page.goto(base + `#/runs/${made.grouped}/steps/2/groups/0`);
  await page.getByText("Advantages are those that the algorithm wrote down.").waitFor();
  await page.getByRole("cell", { name: "-1.75" }).waitFor();
  // Why the run itself dropped a group, and that the one which took its place is another.
  await page.goto(base + `#/runs/${made.grouped}/steps/3`);
  const teaches = page.getByRole("region", { name: "Groups of the step" }).locator("tbody tr");
  await teaches.nth(1).waitFor();
  assert.deepEqual(await teaches.evaluateAll((all) => all.map((tr) => [tr.children[0].textContent, tr.lastElementChild.textContent])), [
    ["1", "nothing: grpo left it out, because its weights had become too old (max_staleness)"], ["1-2", "yes"],
  ]);
  await page.goto(base + `#/runs/${made.grouped}/steps/3/groups/1`);
  await page.getByText("not trained on: grpo left it out, because its weights had become too old").waitFor();
  await page.getByText("does not count: its group was complete without it").waitFor();
  // Why the run left single ones out: the others have advantages.
  await page.goto(base + `#/runs/${made.grouped}/steps/4/groups/0`);
  await page.getByText("Mean reward 1, standard deviation 1, of 2 rollouts that count, of 3.").waitFor();
  await page.getByText("does not count: a call was sampled with settings that change its log-probabilities").waitFor();
  await done();
});

test("what a step has computed of its tokens is shown with them, and in their group", async () => {
  const { page, done } = await open(`runs/${made.run}/steps/1`);
  const row = page.getByRole("region", { name: "Groups of the step" }).locator("tbody tr", { has: page.getByRole("cell", { name: "yes", exact: true }) }).first();
  await row.getByRole("link").click();
  await page.getByText("Advantages are those that the algorithm wrote down.").waitFor();
  const siblings = page.getByRole("region", { name: "Siblings", exact: true }).locator("tbody tr");
  const [id, reward, advantage] = await siblings.first().locator("td").allInnerTexts();
  const { items } = await api(`spans?rollout_id=${id}&name=agentlightning.training`);
  const calls = JSON.parse(items[0].attributes["agentlightning.training.calls"]);
  const [call] = calls;
  assert.equal(advantage, String(Number(call.advantage.toPrecision(4))), "the reward is " + reward);
  assert.equal(items[0].attributes["agentlightning.training.step"], 1);
  await page.goto(base + `#/rollouts/${id}?by=ratio`);
  await page.getByText(`trained on in step 1, advantage ${advantage}`).first().waitFor();
  const step = page.getByText("trained on in step").first().getByRole("link");
  assert.equal(await step.getAttribute("href"), `#/runs/${made.run}/steps/1`);
  await page.getByRole("button", { name: "tokens" }).first().click();
  await page.locator(".tokens > span").first().waitFor();
  for (const title of await page.locator(".tokens > span").evaluateAll((all) => all.map((e) => e.title))) assert.match(title, /^ratio [\d.]+:/);
  // What later steps compute comes to the open pages by itself, and no page asks for it again and again.
  await page.evaluate(() => (window.setInterval = () => 0));
  const learn = (step, value) => {
    const { sequence_id: _, ...span } = items[0];
    Object.assign(span, { span_id: String(step).padStart(16, "0"), start_time: span.start_time + step, end_time: span.end_time + step });
    span.attributes = { ...span.attributes, "agentlightning.training.step": step, "agentlightning.training.calls": JSON.stringify(calls.map((c) => ({ span_id: c.span_id, advantage: value }))) };
    return api("spans/batch", { method: "POST", body: JSON.stringify({ issue_sequence_ids: true, spans: [{ ...span, sequence_id: 0 }] }) });
  };
  await page.goBack();
  await page.getByText("Advantages are those that the algorithm wrote down.").waitFor();
  await learn(101, 0.4375);
  await siblings.first().getByText("0.4375", { exact: true }).waitFor();
  await page.goForward();
  await page.getByText("trained on in step 101, advantage 0.4375").first().waitFor();
  await learn(102, -0.3125);
  await page.getByText("trained on in step 102, advantage -0.3125").first().waitFor();
  assert.equal(await step.getAttribute("href"), `#/runs/${made.run}`, "step 102 does not list this rollout");
  await done();
});

test("a run of the Python package has its metrics, its groups, and the reasons of what failed", async () => {
  const { page, done } = await open("runs");
  await page.getByRole("link", { name: made.python }).click();
  const steps = page.getByRole("region", { name: "Steps of the run" });
  assert.deepEqual((await api("runs/" + encodeURIComponent(made.python))).status, "finished");
  await page.locator("figure.chart", { hasText: "Training reward" }).waitFor();
  await steps.getByRole("cell", { name: "0.3333" }).first().waitFor(); // 0, 1 and 0 of four, of which one has failed
  await steps.getByRole("link", { name: "2", exact: true }).click();
  const groups = page.getByRole("region", { name: "Groups of the step" }).locator("tbody tr");
  await groups.nth(1).waitFor();
  assert.equal(await groups.count(), 2);
  await groups.nth(1).getByRole("link").click();
  const siblings = page.getByRole("region", { name: "Siblings", exact: true }).locator("tbody tr");
  await siblings.nth(1).waitFor();
  assert.deepEqual(await siblings.locator("td:last-child").allInnerTexts(), ["ok", "agent_error"]);
  await siblings.nth(1).getByRole("link").click();
  await page.getByText("there is no double of 3").first().waitFor();
  await done();
});

test("the prompts of a search are a tree with scores, and any two are compared", async () => {
  const { metadata: { search } } = await api("runs/" + made.apo);
  const { page, done } = await open("runs/" + made.apo);
  await page.getByRole("link", { name: "Its prompts" }).click();
  await page.waitForURL(`**/runs/${made.apo}/prompts`);
  const rows = page.getByRole("region", { name: "Candidates" }).locator("tbody tr");
  await rows.first().waitFor();
  assert.equal(await rows.count(), search.candidates.length);
  const cells = await rows.evaluateAll((all) => all.map((tr) => [...tr.children].map((td) => td.textContent)));
  assert.match(cells[0][1], /^seed/);
  assert.equal(cells.filter((c) => /best/.test(c[1])).length, 1);
  assert.match(cells.find((c) => /best/.test(c[1]))[0], new RegExp(search.best + "$"));
  // A child stands below its parent.
  for (const c of search.candidates.slice(1)) {
    const at = (id) => cells.findIndex((row) => row[0].endsWith(id));
    assert.ok(at(c.parent) < at(c.resources_id), c.resources_id);
  }
  assert.match(cells[1][4], /^-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\)$/);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/from=.*&to=/);
  await page.locator(".diff .added, .diff .removed").first().waitFor();
  // Any two: the seed and the best.
  await page.getByRole("radio", { name: "Compare from " + search.candidates[0].resources_id, exact: true }).check();
  await page.getByRole("radio", { name: "Compare to " + search.best, exact: true }).check();
  await page.getByRole("heading", { name: `From ${search.candidates[0].resources_id} to ${search.best}` }).waitFor();
  await page.reload();
  await page.locator(".diff .added").getByText("Think carefully.").first().waitFor();
  await page.goto(base + `#/runs/${made.hostileApo}/prompts`);
  await page.getByText("0.5 (0.25 to 0.75)").waitFor();
  assert.equal(await rows.count(), 4); // two are each other's parent
  await page.getByRole("radio", { name: "Compare to d", exact: true }).check();
  await page.getByRole("radio", { name: /^Compare from <img/ }).check();
  await page.getByText("The store no longer has the resources d").waitFor();
  await page.getByText("The critique that it answers").click();
  await page.getByText("<script>window.hacked=1</script>").waitFor();
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  await page.goto(base + `#/runs/${made.run}/prompts`);
  await page.getByText("No candidates.").waitFor();
  await done();
});

test("a release is frozen, promoted and rolled back, each with a reason", async () => {
  const { page, done } = await open("releases");
  await page.getByText("20 of 40").waitFor(); // the store has counted every session
  await page.getByRole("link", { name: made.release }).click();
  const reward = page.getByRole("region", { name: "Evidence" }).getByRole("row").nth(1);
  assert.match(await reward.innerText(), /reward\s+0\.8\d*\s+0\.5\d*\s+20 \+ 20\s+more than 0\s+\+0\.\d+ to \+0\.\d+\s+better/);
  await page.getByText("20 of at least 50").waitFor();
  const suite = page.getByRole("region", { name: "Offline suite" }).locator("tbody tr");
  assert.deepEqual(await suite.locator("td").allInnerTexts(), ["reward", "0.625", "0.5 (0.4375 to 0.5625)", "60", "not worse", "-0.03125 to +0.2813", "open"]);
  page.on("dialog", (d) => d.accept());
  await page.getByRole("button", { name: "Freeze" }).click();
  await page.locator("h1").getByText("frozen").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Freeze" }).waitFor();
  await page.getByLabel("Reason").fill("<b>it was read</b>");
  await page.getByRole("button", { name: "Promote" }).click();
  await page.locator("h1 .status-promoted").waitFor();
  await page.getByRole("cell", { name: "<b>it was read</b>" }).waitFor();
  await page.getByRole("button", { name: "Roll back" }).click();
  await page.locator("h1 .status-rolledback").waitFor();
  assert.equal(await page.getByRole("button", { name: "Promote" }).count(), 0);
  await done();
});
