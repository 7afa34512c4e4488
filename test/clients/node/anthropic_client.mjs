// The Anthropic SDK against the proxy: Messages before every kind of backend.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';

const says = process.env.MODEL_SAYS;
const png = 'iVBORw0KGgo=';
const tools = [{ name: 'look', description: 'looks', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }];
const cities = [{ city: 'Paris' }, { city: 'São Paulo' }];
const client = new Anthropic({ baseURL: process.env.PROXY_URL, apiKey: process.env.API_KEY, maxRetries: 0 });
const max_tokens = 100;
const hello = [{ role: 'user', content: 'hello' }];

async function both(options) {
  return [await client.messages.create({ max_tokens, ...options }), await client.messages.stream({ max_tokens, ...options }).finalMessage()];
}

async function plain(model) {
  for (const reply of await both({ model, system: 'be kind', messages: hello })) {
    assert.deepEqual([reply.content.length, reply.content[0].text, reply.stop_reason], [1, says, 'end_turn'], model);
    assert.deepEqual([reply.usage.input_tokens, reply.usage.output_tokens], ['be kindhello'.length, [...says].length], model);
  }
}

async function calls(model) {
  const ask = [{ role: 'user', content: 'the weather?' }];
  let last;
  for (const parallel of [true, false]) {
    for (const reply of await both({ model, messages: ask, tools, tool_choice: { type: 'auto', disable_parallel_tool_use: !parallel } })) {
      assert.deepEqual([reply.content[0].text, reply.stop_reason], ['Let me look.', 'tool_use'], model);
      assert.deepEqual(reply.content.slice(1).map((c) => c.input), parallel ? cities : cities.slice(0, 1), model);
      last = reply;
    }
  }
  const results = [{ type: 'tool_result', tool_use_id: last.content[1].id, content: 'sunny' }];
  const messages = [...ask, { role: 'assistant', content: last.content }, { role: 'user', content: results }];
  assert.equal((await client.messages.create({ model, max_tokens, messages, tools })).content[0].text, 'It is sunny', model);
}

async function images(model) {
  const content = [{ type: 'text', text: 'what is it?' }, { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } }];
  const reply = await client.messages.create({ model, max_tokens, messages: [{ role: 'user', content }] });
  assert.equal(reply.content[0].text, `I see data:image/png;base64,${png}`, model);
}

async function errors() {
  const create = (model) => client.messages.create({ model, max_tokens, messages: hello });
  await assert.rejects(create('nobody'), (e) => e instanceof Anthropic.NotFoundError && /does not exist/.test(e.message));
  await assert.rejects(create('limited'), (e) => e instanceof Anthropic.RateLimitError && e.headers.get('retry-after') === '7');
  await assert.rejects(create('failing'), (e) => e instanceof Anthropic.BadRequestError && /too long/.test(e.message));
}

async function faults() {
  const streamed = (model) => client.messages.stream({ model, max_tokens, messages: hello }).finalMessage();
  for (const model of process.env.WHOLE.split(' ')) {
    assert.equal((await streamed(model)).content[0].text.replace(/^x+/, ''), says, model);
  }
  for (const model of process.env.FAILED.split(' ')) await assert.rejects(streamed(model), undefined, model);
}

async function leaving() {
  const arrived = async () => (await client.messages.create({ model: 'arrived', max_tokens, messages: hello })).content[0].text;
  const before = await arrived();
  for (let timeout = 300; await arrived() === before; timeout *= 2) { // until it is long enough for the backend to have the call
    await assert.rejects(client.messages.create({ model: 'stalled', max_tokens, messages: hello }, { timeout }), Anthropic.APIConnectionTimeoutError);
  }
  const stream = await client.messages.create({ model: 'stalled', max_tokens, messages: hello, stream: true });
  for await (const event of stream) if (event) break;
  return 2;
}

for (const model of ['vllm', 'oldvllm', 'sglang', 'openai', 'azure', 'claude']) {
  await plain(model);
  await calls(model);
  await images(model);
}
for (const model of ['vllm', 'claude']) {
  assert.equal((await client.messages.countTokens({ model, system: 'be kind', messages: hello })).input_tokens, 'be kindhello'.length, model);
}
await errors();
await faults();
console.log('left', await leaving());
