// The OpenAI SDK against the proxy: every endpoint before every backend that has it.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const says = process.env.MODEL_SAYS;
const png = 'data:image/png;base64,iVBORw0KGgo=';
const look = { name: 'look', description: 'looks', parameters: { type: 'object', properties: { city: { type: 'string' } } } };
const tools = [{ type: 'function', function: look }];
const cities = ['{"city": "Paris"}', '{"city": "S\\u00e3o Paulo"}'];
const client = new OpenAI({ baseURL: process.env.PROXY_URL + '/v1', apiKey: process.env.API_KEY, maxRetries: 0 });
const chat = client.chat.completions;
const hello = [{ role: 'user', content: 'hello' }];

async function plain(model) {
  const reply = await chat.create({ model, messages: hello });
  assert.equal(reply.choices[0].message.content, says, model);
  assert.equal(reply.choices[0].finish_reason, 'stop', model);
  assert(!JSON.stringify(reply).includes('token_ids'), model);
  let text = '', usage;
  for await (const chunk of await chat.create({ model, messages: hello, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
    assert(!JSON.stringify(chunk).includes('token_ids'), model);
  }
  assert.deepEqual([text, usage.completion_tokens], [says, reply.usage.completion_tokens], model);
}

async function calls(model) {
  const ask = [{ role: 'user', content: 'the weather?' }];
  let whole;
  for (const parallel of [true, false]) {
    const options = { model, messages: ask, tools, ...(parallel ? {} : { parallel_tool_calls: false }) };
    whole = (await chat.create(options)).choices[0];
    const streamed = (await chat.stream(options).finalChatCompletion()).choices[0];
    for (const choice of [whole, streamed]) {
      assert.deepEqual([choice.message.content, choice.finish_reason], ['Let me look.', 'tool_calls'], model);
      assert.deepEqual(choice.message.tool_calls.map((c) => c.function.arguments), parallel ? cities : cities.slice(0, 1), model);
    }
  }
  const result = { role: 'tool', tool_call_id: whole.message.tool_calls[0].id, content: 'sunny' };
  const reply = await chat.create({ model, messages: [...ask, whole.message, result], tools });
  assert.equal(reply.choices[0].message.content, 'It is sunny', model);
}

async function images(model) {
  const content = [{ type: 'text', text: 'what is it?' }, { type: 'image_url', image_url: { url: png } }];
  const reply = await chat.create({ model, messages: [{ role: 'user', content }] });
  assert.equal(reply.choices[0].message.content, 'I see ' + png, model);
}

async function completions(model) {
  assert.equal((await client.completions.create({ model, prompt: 'hello' })).choices[0].text, says, model);
  let text = '';
  for await (const chunk of await client.completions.create({ model, prompt: 'hello', stream: true })) text += chunk.choices[0]?.text ?? '';
  assert.equal(text, says, model);
}

async function responses(model) {
  const reply = await client.responses.create({ model, input: 'hello' });
  assert.deepEqual([reply.output_text, reply.status], [says, 'completed'], model);
  let text = '', last;
  for await (const event of await client.responses.create({ model, input: 'hello', stream: true })) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.deepEqual([text, last.type], [says, 'response.completed'], model);
  const offered = [{ type: 'function', ...look, strict: false }];
  const called = await client.responses.stream({ model, input: 'the weather?', tools: offered }).finalResponse();
  assert.deepEqual(called.output.filter((i) => i.type === 'function_call').map((i) => i.arguments), cities, model);
}

async function errors() {
  await assert.rejects(chat.create({ model: 'nobody', messages: hello }), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model');
  await assert.rejects(chat.create({ model: 'limited', messages: hello }), (e) => e instanceof OpenAI.RateLimitError && e.headers.get('retry-after') === '7');
  await assert.rejects(chat.create({ model: 'failing', messages: hello }), (e) => e instanceof OpenAI.BadRequestError && /too long/.test(e.message));
}

async function faults() {
  const streamed = async (model) => {
    let text = '';
    for await (const chunk of await chat.create({ model, messages: hello, stream: true })) text += chunk.choices[0]?.delta.content ?? '';
    return text.replace(/^x+/, '');
  };
  const responded = async (model) => {
    let text = '';
    for await (const event of await client.responses.create({ model, input: 'hello', stream: true })) {
      if (event.type === 'response.output_text.delta') text += event.delta;
    }
    return text.replace(/^x+/, '');
  };
  for (const model of process.env.WHOLE.split(' ')) {
    assert.equal(await streamed(model), says, model);
    assert.equal(await responded(model), says, model);
  }
  for (const model of process.env.FAILED.split(' ')) {
    await assert.rejects(streamed(model), undefined, model);
    await assert.rejects(responded(model), undefined, model);
  }
}

async function leaving() {
  const arrived = async () => (await chat.create({ model: 'arrived', messages: hello })).choices[0].message.content;
  const before = await arrived();
  for (let timeout = 300; await arrived() === before; timeout *= 2) { // until it is long enough for the backend to have the call
    await assert.rejects(chat.create({ model: 'stalled', messages: hello }, { timeout }), OpenAI.APIConnectionTimeoutError);
  }
  const stream = await chat.create({ model: 'stalled', messages: hello, stream: true });
  for await (const chunk of stream) if (chunk) break;
  const other = await client.responses.create({ model: 'stalled', input: 'hello', stream: true });
  for await (const event of other) if (event.type === 'response.output_text.delta') break;
  return 3;
}

for (const model of ['vllm', 'oldvllm', 'sglang', 'openai', 'azure', 'claude']) {
  await plain(model);
  await calls(model);
  await images(model);
  if (model !== 'claude') await completions(model);
  await responses(model);
}
assert.deepEqual((await client.embeddings.create({ model: 'openai', input: 'hello', encoding_format: 'float' })).data[0].embedding, [0.25, -0.5]);
await errors();
await faults();
console.log('left', await leaving());
