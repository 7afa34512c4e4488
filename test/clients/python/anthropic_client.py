"""The Anthropic SDK against the proxy: Messages before every kind of backend."""

import os

import anthropic

URL, SAYS = os.environ["PROXY_URL"], os.environ["MODEL_SAYS"]
PNG = "iVBORw0KGgo="
TOOLS = [{"name": "look", "description": "looks", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
CITIES = [{"city": "Paris"}, {"city": "São Paulo"}]
client = anthropic.Anthropic(base_url=URL, api_key=os.environ["API_KEY"], max_retries=0)


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def create(model, **options):
    return client.messages.create(model=model, max_tokens=100, **options)


def final(model, **options):
    with client.messages.stream(model=model, max_tokens=100, **options) as stream:
        return stream.get_final_message()


def plain(model):
    ask = {"system": "be kind", "messages": [{"role": "user", "content": "hello"}]}
    for reply in (create(model, **ask), final(model, **ask)):
        equal(([b.type for b in reply.content], reply.content[0].text, reply.stop_reason), (["text"], SAYS, "end_turn"), model)
        equal((reply.usage.input_tokens, reply.usage.output_tokens), (len("be kindhello"), len(SAYS)), model)
    with client.messages.stream(model=model, max_tokens=100, **ask) as stream:
        equal("".join(stream.text_stream), SAYS, model)


def tools(model):
    ask = [{"role": "user", "content": "the weather?"}]
    for parallel in (True, False):
        options = {"tools": TOOLS, "tool_choice": {"type": "auto", "disable_parallel_tool_use": not parallel}}
        for reply in (create(model, messages=ask, **options), final(model, messages=ask, **options)):
            equal((reply.content[0].text, reply.stop_reason), ("Let me look.", "tool_use"), model)
            calls = reply.content[1:]
            equal([c.input for c in calls], CITIES if parallel else CITIES[:1], model)
    results = [{"type": "tool_result", "tool_use_id": calls[0].id, "content": [{"type": "text", "text": "sunny"}]}]
    reply = create(model, messages=[*ask, {"role": "assistant", "content": reply.content}, {"role": "user", "content": results}], tools=TOOLS)
    equal(reply.content[0].text, "It is sunny", model)


def images(model):
    content = [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]
    reply = create(model, messages=[{"role": "user", "content": content}])
    equal(reply.content[0].text, f"I see data:image/png;base64,{PNG} https://example.org/a.png", model)


def fails(kind, call, says=""):
    try:
        call()
    except kind as err:
        assert says in str(err), f"{err!r} does not say {says!r}"
        return err
    raise AssertionError(f"no {kind.__name__}")


HELLO = [{"role": "user", "content": "hello"}]


def errors():
    err = fails(anthropic.NotFoundError, lambda: create("nobody", messages=HELLO), "does not exist")
    equal(err.response.headers["agl-error-source"], "gateway")
    err = fails(anthropic.RateLimitError, lambda: create("limited", messages=HELLO), "Rate limit reached")
    equal((err.response.headers["retry-after"], err.body["error"]["type"]), ("7", "rate_limit_error"))
    fails(anthropic.BadRequestError, lambda: create("failing", messages=HELLO), "the prompt is too long")
    document = [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]}]
    fails(anthropic.BadRequestError, lambda: create("vllm", messages=document), "messages[0].content[0].type")


def faults():
    for model in os.environ["WHOLE"].split():
        equal(final(model, messages=HELLO).content[0].text.lstrip("x"), SAYS, model)
        equal(create(model, messages=HELLO).content[0].text, SAYS, model)
    for model in os.environ["FAILED"].split():
        fails(Exception, lambda: final(model, messages=HELLO))


def arrived():
    return create("arrived", messages=HELLO).content[0].text


def leaving():
    timeout, before = 0.3, arrived()
    while arrived() == before:  # until the timeout is long enough for the backend to have the call
        impatient = client.with_options(timeout=timeout)
        fails(anthropic.APITimeoutError, lambda: impatient.messages.create(model="stalled", max_tokens=100, messages=HELLO))
        timeout *= 2
    stream = client.messages.create(model="stalled", max_tokens=100, messages=HELLO, stream=True)
    next(iter(stream))
    stream.close()
    return 2


for name in ("vllm", "oldvllm", "sglang", "openai", "azure", "claude"):
    plain(name)
    tools(name)
    images(name)
for name in ("vllm", "claude"):
    equal(client.messages.count_tokens(model=name, system="be kind", messages=HELLO).input_tokens, len("be kindhello"), name)
fails(anthropic.NotFoundError, lambda: client.messages.count_tokens(model="openai", messages=HELLO), "does not count")
errors()
faults()
print("left", leaving())
