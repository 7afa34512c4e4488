// An agent with OpenAI's npm package. Each task comes with the model's address. Nothing here is about training.
import { createInterface } from "node:readline";
import OpenAI from "openai";

async function solve(task, env) {
  const client = new OpenAI({ baseURL: env.OPENAI_BASE_URL, apiKey: env.OPENAI_API_KEY });
  const completion = await client.chat.completions.create({
    model: env.OPENAI_MODEL,
    messages: [{ role: "user", content: task.question }],
    max_tokens: 4,
  });
  return completion.choices[0].message.content === task.answer ? 1 : 0;
}

// One process runs many tasks: see keepalive in agl.yaml.
for await (const line of createInterface({ input: process.stdin })) {
  const { task, env } = JSON.parse(line);
  let result;
  try {
    result = { reward: await solve(task, env) };
  } catch (error) {
    result = { error: String(error) };
  }
  console.log(JSON.stringify(result));
}
