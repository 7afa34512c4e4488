// The browser of the tests, the page in it, and the store behind it. Each file of tests has a browser of its own.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { after, before, test as once } from "node:test";

const require = createRequire(process.env.AGL_PAGE_NODE + "/");
const { chromium } = require("playwright-core");
export const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
export const base = process.env.AGL_PAGE_URL + "/";
export const token = process.env.AGL_PAGE_TOKEN;
export const made = JSON.parse(process.env.AGL_PAGE_IDS);

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: process.env.AGL_PAGE_BROWSER, args: ["--no-sandbox"] });
});
after(() => browser.close());

// test is node's test; in CI, up to three tests that fail are run once more, and named (test/again.sh).
let again = process.env.AGAIN ? 3 : 0;
export const test = (name, run) => once(name, async (t) => {
  try {
    await run(t);
  } catch (failure) {
    if (again-- <= 0) throw failure;
    t.diagnostic(failure.stack);
    await run(t);
    mkdirSync("../../.cache/again", { recursive: true });
    appendFileSync("../../.cache/again/page", `page: ${name}\n${failure.stack}\n`);
  }
});

// open opens a view as a reader who has signed in. Whatever the page reports to the
// console, each request to another host, and the key in what the page shows, keeps or asks
// for, is a mistake.
export async function open(hash, { width = 1440, address = base, key = token, locale = "en-US" } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, locale, permissions: [] });
  if (key) await context.request.post(address + "v1/agl/login", { data: { key } });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const mistakes = [];
  page.on("console", (m) => m.type() === "error" && !/401/.test(m.text()) && mistakes.push(m.text()));
  page.on("console", (m) => m.text().includes(token) && mistakes.push("the console has the key"));
  page.on("pageerror", (e) => mistakes.push(e.message));
  page.on("request", (r) => new URL(r.url()).protocol.startsWith("http") && new URL(r.url()).host !== new URL(address).host && mistakes.push("request to " + r.url()));
  page.on("request", (r) => (r.url() + (r.headers().referer ?? "")).includes(token) && mistakes.push("the key is in the address of a request"));
  await page.goto(address + "#/" + hash);
  const done = async (expected = []) => {
    const left = await page.evaluate(() => [document.documentElement.outerHTML, location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
    if (left.some((text) => text.includes(token))) mistakes.push("the page has the key");
    assert.deepEqual(mistakes.filter((text) => !expected.some((e) => e.test(text))), []);
    await context.close();
  };
  return { page, done };
}

export const api = async (path, init = {}) => {
  const response = await fetch(base + "v1/agl/" + path, { ...init, headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" } });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
};
