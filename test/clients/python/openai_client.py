"""The OpenAI SDK against the proxy: every endpoint before every backend that has it."""

import os

import openai

URL, SAYS = os.environ["PROXY_URL"], os.environ["MODEL_SAYS"]
PNG = "data:image/png;base64,iVBORw0KGgo="
TOOLS = [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CITIES = ['{"city": "Paris"}', '{"city": "S\\u00e3o Paulo"}']
client = openai.OpenAI(base_url=URL + "/v1", api_key=os.environ["API_KEY"], max_retries=0)
chat = client.chat.completions


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def plain(model):
    hello = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    reply = chat.create(model=model, messages=hello)
    choice = reply.choices[0]
    equal((choice.message.content, choice.finish_reason), (SAYS, "stop"), model)
    equal(reply.usage.completion_tokens, len(SAYS), model)
    assert choice.logprobs is None, model
    for extra in ("prompt_token_ids", "response_token_ids", "token_ids"):
        assert extra not in str(reply), f"{model}: {reply}"
    text, finish, usage = "", None, None
    for chunk in chat.create(model=model, messages=hello, stream=True, stream_options={"include_usage": True}):
        for c in chunk.choices:
            text += c.delta.content or ""
            finish = c.finish_reason or finish
        usage = chunk.usage or usage
        assert "token_ids" not in str(chunk), f"{model}: {chunk}"
    equal((text, finish, usage.completion_tokens), (SAYS, "stop", len(SAYS)), model)
    for chunk in chat.create(model=model, messages=hello, stream=True):
        assert chunk.choices and chunk.usage is None, f"{model}: {chunk}"


def tools(model):
    ask = [{"role": "user", "content": "the weather?"}]
    for parallel in (True, False):
        extra = {} if parallel else {"parallel_tool_calls": False}
        whole = chat.create(model=model, messages=ask, tools=TOOLS, tool_choice="auto", **extra).choices[0]
        with chat.stream(model=model, messages=ask, tools=TOOLS, tool_choice="auto", **extra) as stream:
            streamed = stream.get_final_completion().choices[0]
        for choice in (whole, streamed):
            equal((choice.message.content, choice.finish_reason), ("Let me look.", "tool_calls"), model)
            equal([c.function.arguments for c in choice.message.tool_calls], CITIES if parallel else CITIES[:1], model)
            assert len({c.id for c in choice.message.tool_calls}) == len(choice.message.tool_calls)
    results = [{"role": "tool", "tool_call_id": c.id, "content": text} for c, text in zip(whole.message.tool_calls, ["sunny"])]
    reply = chat.create(model=model, messages=[*ask, whole.message, *results], tools=TOOLS)
    equal(reply.choices[0].message.content, "It is sunny", model)


def images(model):
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": PNG}}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    reply = chat.create(model=model, messages=[{"role": "user", "content": parts}])
    equal(reply.choices[0].message.content, f"I see {PNG} https://example.org/a.png", model)


def completions(model):
    equal(client.completions.create(model=model, prompt="hello").choices[0].text, SAYS, model)
    equal("".join(c.text for chunk in client.completions.create(model=model, prompt="hello", stream=True) for c in chunk.choices), SAYS, model)


def responses(model):
    reply = client.responses.create(model=model, instructions="be kind", input="hello")
    equal((reply.output_text, reply.status, reply.usage.output_tokens), (SAYS, "completed", len(SAYS)), model)
    text, last = "", None
    for event in client.responses.create(model=model, input="hello", stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    equal((text, last.type, last.response.output_text), (SAYS, "response.completed", SAYS), model)
    offered = [{"type": "function", **TOOLS[0]["function"], "strict": False}]
    ask = [{"role": "user", "content": [{"type": "input_text", "text": "the weather?"}]}]
    with client.responses.stream(model=model, input=ask, tools=offered) as stream:
        reply = stream.get_final_response()
    calls = [item for item in reply.output if item.type == "function_call"]
    equal([c.arguments for c in calls], CITIES, model)
    outputs = [{"type": "function_call_output", "call_id": c.call_id, "output": text} for c, text in zip(calls, ["sunny", "wet"])]
    reply = client.responses.create(model=model, input=[*ask, *[c.model_dump(exclude={"parsed_arguments"}) for c in calls], *outputs], tools=offered)
    equal(reply.output_text, "It is sunny and wet", model)


def fails(kind, call, says=""):
    try:
        call()
    except kind as err:
        assert says in str(err), f"{err!r} does not say {says!r}"
        return err
    raise AssertionError(f"no {kind.__name__}")


def errors():
    hello = [{"role": "user", "content": "hello"}]
    err = fails(openai.NotFoundError, lambda: chat.create(model="nobody", messages=hello), "does not exist")
    equal((err.code, err.param, err.response.headers["agl-error-source"]), ("model_not_found", "model", "gateway"))
    err = fails(openai.RateLimitError, lambda: chat.create(model="limited", messages=hello), "Rate limit reached")
    equal(err.response.headers["retry-after"], "7")
    fails(openai.BadRequestError, lambda: chat.create(model="failing", messages=hello), "the prompt is too long")
    err = fails(openai.BadRequestError, lambda: chat.create(model="claude", messages=hello, n=2), "n: got 2")
    equal(err.param, "n")
    fails(openai.BadRequestError, lambda: client.responses.create(model="vllm", input="hello", previous_response_id="resp_1"), "previous_response_id")


def faults():
    hello = [{"role": "user", "content": "hello"}]

    def text(model):
        return "".join(c.delta.content or "" for chunk in chat.create(model=model, messages=hello, stream=True) for c in chunk.choices)

    def responded(model):
        return "".join(e.delta for e in client.responses.create(model=model, input="hello", stream=True) if e.type == "response.output_text.delta")

    for model in os.environ["WHOLE"].split():
        equal(text(model).lstrip("x"), SAYS, model)
        equal(responded(model).lstrip("x"), SAYS, model)
        equal(chat.create(model=model, messages=hello).choices[0].message.content, SAYS, model)
    for model in os.environ["FAILED"].split():
        fails(Exception, lambda: text(model))
        fails(Exception, lambda: responded(model))


def gives_up(kind, call):
    """Has a call run into a timeout that is long enough for the backend to have the call."""

    def arrived():
        return chat.create(model="arrived", messages=[{"role": "user", "content": "hello"}]).choices[0].message.content

    timeout, before = 0.3, arrived()
    while arrived() == before:
        fails(kind, lambda: call(client.with_options(timeout=timeout).chat.completions))
        timeout *= 2


def leaving():
    hello = [{"role": "user", "content": "hello"}]
    gives_up(openai.APITimeoutError, lambda impatient: impatient.create(model="stalled", messages=hello))
    gives_up(Exception, lambda impatient: list(impatient.create(model="stalled", messages=hello, stream=True)))
    stream = chat.create(model="stalled", messages=hello, stream=True)
    next(iter(stream))
    stream.close()
    return 3


for name in ("vllm", "oldvllm", "sglang", "openai", "azure", "claude"):
    plain(name)
    tools(name)
    images(name)
    if name != "claude":
        completions(name)
    responses(name)
equal(client.embeddings.create(model="openai", input="hello", encoding_format="float").data[0].embedding, [0.25, -0.5])
equal([m.id for m in client.models.list()][0], "vllm")
errors()
faults()
print("left", leaving())
