// @ts-check
// An agent that asks a model which of three digits is the largest.
//
// agl keeps this program running: a line of JSON on standard input for each task, a line with the reward on standard output.
// The types are in comments, so that Node 18 and later run the file as it is. `npx tsc` checks them.
import { createInterface } from "node:readline";

/**
 * @typedef {{question: string, answer: string}} Task
 * @typedef {{OPENAI_BASE_URL: string, OPENAI_API_KEY: string, OPENAI_MODEL: string}} Env
 * @typedef {{task: Task, env: Env}} Attempt
 * @typedef {{choices: {message: {content: string}}[]}} Completion
 */

/**
 * Asks the model behind agl's proxy, which records the call with its tokens.
 * @param {Env} env
 * @param {string} question
 * @returns {Promise<string>}
 */
async function ask(env, question) {
  const response = await fetch(`${env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { Authorization: `Bearer ${env.OPENAI_API_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({ model: env.OPENAI_MODEL, messages: [{ role: "user", content: question }], max_tokens: 4 }),
  });
  if (!response.ok) {
    throw new Error(`the model answers ${response.status}: ${await response.text()}`);
  }
  const completion = /** @type {Completion} */ (await response.json());
  return completion.choices[0]?.message.content ?? "";
}

/**
 * Runs one task and returns its reward: 1 is right, 0 is wrong.
 * @param {Task} task
 * @param {Env} env
 * @returns {Promise<number>}
 */
async function solve(task, env) {
  return (await ask(env, task.question)) === task.answer ? 1 : 0;
}

for await (const line of createInterface({ input: process.stdin })) {
  const attempt = /** @type {Attempt} */ (JSON.parse(line));
  /** @type {{reward: number} | {error: string}} */
  let result;
  try {
    result = { reward: await solve(attempt.task, attempt.env) };
  } catch (error) {
    result = { error: String(error) }; // the attempt has failed; the next one may not
  }
  console.log(JSON.stringify(result));
}
