"""Builders of spans in the wire form."""

from typing import Any

EPOCH = 1760706315.25


def span(
    span_id: str,
    name: str = "step",
    start: float | None = 0.0,
    end: float | None = None,
    parent: str | None = None,
    attributes: dict[str, Any] | None = None,
    sequence: int = 1,
    status: str = "OK",
    epoch: float = EPOCH,
) -> dict[str, Any]:
    """A span whose times are seconds after the epoch; without an end it ends as it starts."""
    if end is None:
        end = start
    return {
        "rollout_id": "ro-1",
        "attempt_id": "at-1",
        "sequence_id": sequence,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": span_id,
        "parent_id": parent,
        "name": name,
        "status": {"status_code": status, "description": None},
        "attributes": attributes or {},
        "events": [],
        "links": [],
        "start_time": None if start is None else epoch + start,
        "end_time": None if end is None else epoch + end,
        "context": None,
        "parent": None,
        "resource": {"attributes": {}, "schema_url": ""},
    }


def number(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives the spans the sequence ids 1, 2, …"""
    for i, one in enumerate(spans):
        one["sequence_id"] = i + 1
    return spans


def call(
    span_id: str,
    start: float,
    end: float,
    parent: str | None = None,
    response: str | None = None,
    prompt: list[int] | None = None,
    reply: list[int] | None = None,
    name: str = "openai.chat.completion",
    **more: Any,
) -> dict[str, Any]:
    """A traced model call."""
    attributes: dict[str, Any] = {
        "gen_ai.request.model": "tiny",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": f"question of {span_id}",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": f"answer of {span_id}",
        "gen_ai.completion.0.finish_reason": "stop",
    }
    if response is not None:
        attributes["gen_ai.response.id"] = response
    if prompt is not None:
        attributes["prompt_token_ids"] = prompt
    if reply is not None:
        attributes["response_token_ids"] = reply
    attributes.update(more.pop("attributes", {}))
    return span(span_id, name, start, end, parent, attributes, **more)


def reward(span_id: str, at: float, value: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A reward of one dimension, or of several given as a dict whose first is the primary one."""
    dimensions = value if isinstance(value, dict) else {"primary": value}
    attributes: dict[str, Any] = {}
    for i, (name, one) in enumerate(dimensions.items()):
        attributes[f"agentlightning.reward.{i}.name"] = name
        attributes[f"agentlightning.reward.{i}.value"] = one
    return span(span_id, "agentlightning.annotation", at, at, parent, attributes, **more)


def litellm(
    key: str,
    sequence: int,
    start: float,
    prompt: Any,
    reply: Any,
    *,
    response: str | None = None,
    raw: dict[str, Any] | None = None,
    request: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The three spans of one call through LiteLLM's proxy in front of vLLM."""
    response = f"chatcmpl-{key}" if response is None else response
    root = span(f"{key}-root", "Received Proxy Server Request", start, start + 1, None, sequence=sequence)
    outer = span(
        f"{key}-lite",
        "litellm_request",
        start + 0.1,
        start + 0.8,
        f"{key}-root",
        {
            "gen_ai.request.model": "tiny",
            "gen_ai.system": "hosted_vllm",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": f"question {key}",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": f"answer {key}",
            "gen_ai.completion.0.finish_reason": "stop",
            "gen_ai.response.id": response,
            "gen_ai.response.model": "tiny",
            **(request or {}),
        },
        sequence=sequence,
    )
    attributes: dict[str, Any] = {"llm.hosted_vllm.id": response}
    if prompt is not None:
        attributes["llm.hosted_vllm.prompt_token_ids"] = repr(prompt)
    if reply is not None:
        choice = {"index": 0, "message": {"role": "assistant", "content": "it's \"so\"\n"}, "logprobs": None}
        attributes["llm.hosted_vllm.choices"] = repr([{**choice, "finish_reason": "stop", "token_ids": reply}])
    attributes.update(raw or {})
    inner = span(
        f"{key}-raw", "raw_gen_ai_request", start + 0.2, start + 0.7, f"{key}-lite", attributes, sequence=sequence
    )
    return [inner, outer, root]
