// An agent that asks a model which of three digits is the largest.
//
// agl keeps this program running: a line of JSON on standard input for each task, a line with the reward on standard output.
// Node from 22.18 on runs the file as it is; `npx tsc` checks its types.
import { createInterface } from "node:readline";

interface Task {
  question: string;
  answer: string;
}

// Env holds the variables that a separate process would find in its environment.
interface Env {
  OPENAI_BASE_URL: string;
  OPENAI_API_KEY: string;
  OPENAI_MODEL: string;
  AGL_SEED?: string;
}

interface Completion {
  choices: { message: { content: string } }[];
}

type Result = { reward: number } | { error: string };

// ask asks the model behind agl's proxy, which records the call with its tokens. With the seed that agl chose for this attempt,
// the same run gives the same result again.
async function ask(env: Env, question: string): Promise<string> {
  const response = await fetch(`${env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { Authorization: `Bearer ${env.OPENAI_API_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      model: env.OPENAI_MODEL,
      messages: [{ role: "user", content: question }],
      max_tokens: 4,
      seed: env.AGL_SEED ? Number(env.AGL_SEED) : null,
    }),
  });
  if (!response.ok) {
    throw new Error(`the model answers ${response.status}: ${await response.text()}`);
  }
  const completion = (await response.json()) as Completion;
  return completion.choices[0]?.message.content ?? "";
}

// solve runs one task and returns its reward: 1 is right, 0 is wrong.
async function solve(task: Task, env: Env): Promise<number> {
  return (await ask(env, task.question)) === task.answer ? 1 : 0;
}

for await (const line of createInterface({ input: process.stdin })) {
  const attempt = JSON.parse(line) as { task: Task; env: Env };
  let result: Result;
  try {
    result = { reward: await solve(attempt.task, attempt.env) };
  } catch (error) {
    result = { error: String(error) }; // the attempt has failed; the next one may not
  }
  console.log(JSON.stringify(result));
}
