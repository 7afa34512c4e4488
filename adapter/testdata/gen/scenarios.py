"""Traces written by hand, one function each. The name becomes the file's name, the docstring its description."""

import json
from typing import Any

from spans import call, litellm, number, reward, span

Spans = list[dict[str, Any]]

# Options of the tracer adapter that every scenario is run with.
OPTIONS: list[dict[str, Any]] = [
    {},
    {"repair_hierarchy": False},
    {"reward_match": "first_sibling"},
    {"reward_match": "first_sibling", "repair_hierarchy": False},
    {"reward_match": "final"},
    {"exclude_llm_call_in_reward": False},
    {"agent_match": "^(writer|critic)$"},
    {"agent_match": "critic", "repair_hierarchy": False},
    {"llm_call_match": "chat|generate"},
    {"_skip_empty_token_spans": True},
]


def single_call() -> Spans:
    """One agent, one call, one reward."""
    return number(
        [
            call("c1", 1, 2, "root", "chatcmpl-1", [1, 2, 3], [4, 5]),
            reward("r1", 3, 1.0, "root"),
            span("root", "agent.run", 0, 4),
        ]
    )


def nested_agents() -> Spans:
    """A supervisor that calls two agents, each with calls and tool spans, rewards between."""
    return number(
        [
            call("c1", 1, 2, "writer", "a", [1], [2]),
            span("t1", "tool", 2.1, 2.4, "writer", {"tool.name": "search", "tool.parameters": '{"q":"x"}'}),
            call("c2", 2.5, 3, "writer", "b", [1, 2, 3], [4]),
            span("writer", "Agent", 0.9, 3.1, "super", {"agent.name": "writer"}),
            reward("r1", 3.2, 0.25, "super"),
            call("c3", 4, 5, "critic", "c", [9], [8]),
            span("critic", "Agent", 3.9, 5.1, "super", {"agent.name": "critic"}),
            reward("r2", 5.2, 0.75, "super"),
            call("c4", 5.5, 5.8, "super", "d", [7], [6]),
            span("super", "run", 0, 6, None, {"agent.name": "supervisor"}),
            reward("r3", 6.5, 1, None),
        ]
    )


def agent_names() -> Spans:
    """Every rule that names an agent, in the order in which they are tried."""
    rules: list[tuple[str, dict[str, Any]]] = [
        ("n1", {"agent.name": "writer", "recipient_agent_type": "never"}),
        ("n2", {"agentops.span.kind": "agent", "operation.name": "critic"}),
        ("n3", {"agentops.span.kind": "tool", "operation.name": "not-this", "recipient_agent_type": "autogen"}),
        ("n4", {"langchain.chain.type": "LangGraph", "executor.id": "never"}),
        ("n5", {"executor.id": "executor-1"}),
        ("n6", {"type": "agent", "agentlightning.operation.input.name": "weave"}),
        ("n7", {"type": "tool", "agentlightning.operation.input.name": "not-this"}),
        ("n8", {"lc_name": "not-this-without-the-span-name"}),
        ("n9", {"agentops.span.kind": "agent", "executor.id": "kind-without-name"}),
        ("n10", {"agent.name": ""}),
    ]
    spans: Spans = [span("root", "run", 0, 100)]
    for i, (key, attributes) in enumerate(rules):
        spans.append(span(key, "node", 10 * i, 10 * i + 9, "root", attributes))
        spans.append(call(f"{key}-call", 10 * i + 1, 10 * i + 2, key, key, [i + 1], [i + 2]))
    spans.append(span("n11", "langchain.Chain.run", 91, 98, "root", {"lc_name": "chain"}))
    spans.append(call("n11-call", 92, 93, "n11", "n11", [50], [51]))
    # The span of a call that is itself named: the call belongs to what is above it.
    spans.append(call("n12", 94, 95, "n11", "n12", [60], [61], attributes={"agent.name": "self"}))
    spans.append(call("n13", 94.2, 94.4, "n12", "n13", [62], [63]))
    return number(spans)


def broken_hierarchy() -> Spans:
    """Calls that hang under the root although they ran inside an agent's time."""
    return number(
        [
            span("writer", "Agent", 1, 5, "root", {"agent.name": "writer"}),
            span("step", "step", 1.5, 4.5, "writer"),
            call("c1", 2, 3, "root", "a", [1], [2]),
            span("critic", "Agent", 6, 9, "root", {"agent.name": "critic"}),
            call("c2", 7, 8, "root", "b", [3], [4]),
            call("c3", 9.5, 9.6, "root", "c", [5], [6]),
            reward("r1", 4, 0.5, "root"),
            reward("r2", 9.8, 1.0, "root"),
            span("root", "run", 0, 10),
        ]
    )


def missing_parents() -> Spans:
    """Two parents that were never recorded, and two recorded roots: one root stands for all."""
    return number(
        [
            call("c1", 1, 2, "lost-a", "a", [1], [2]),
            reward("r1", 2.5, 0.5, "lost-a"),
            call("c2", 3, 4, "lost-b", "b", [3], [4]),
            span("top", "run", 0, 10, None, {"agent.name": "writer"}),
            call("c3", 5, 6, "lost-a", "c", [5], [6]),
            reward("r2", 7, 1.5, None),
        ]
    )


def one_missing_root() -> Spans:
    """The session span that wraps everything was lost."""
    return number(
        [
            span("agent", "Agent", 1, 6, "lost", {"agent.name": "writer"}),
            call("c1", 2, 3, "lost", "a", [1], [2]),
            call("c2", 4, 5, "lost", "b", [3], [4]),
            reward("r1", 5.5, 0.5, "lost"),
        ]
    )


def no_root() -> Spans:
    """Spans that are one another's parents."""
    return number([span("a", "x", 0, 1, "b"), span("b", "y", 0, 1, "a")])


def unreachable_cycle() -> Spans:
    """A cycle beside a proper root."""
    return number(
        [
            span("root", "run", 0, 9),
            call("c1", 1, 2, "root", "a", [1], [2]),
            call("c2", 3, 4, "loop", "b", [3], [4]),
            span("loop", "x", 3, 5, "c2"),
        ]
    )


def empty() -> Spans:
    """No spans at all."""
    return []


def several_rewards() -> Spans:
    """More rewards than calls since the last reward: the later ones go to earlier calls."""
    return number(
        [
            span("root", "run", 0, 20),
            call("c1", 1, 2, "root", "a", [1], [2]),
            call("c2", 3, 4, "root", "b", [3], [4]),
            call("c3", 5, 6, "root", "c", [5], [6]),
            reward("r1", 6.5, 0.25, "root"),
            reward("r2", 7, 0.5, "root"),
            call("c4", 8, 9, "root", "d", [7], [8]),
            reward("r3", 8.5, 0.75, "root"),
            reward("r4", 9, 1.0, "root"),
            reward("r5", 0.5, -1.0, "root"),
        ]
    )


def rewards_out_of_order() -> Spans:
    """Siblings that are not recorded in order of time."""
    return number(
        [
            span("root", "run", 0, 20),
            reward("r1", 9, 1.0, "root"),
            call("c2", 6, 7, "root", "b", [3], [4]),
            reward("r2", 5, 0.5, "root"),
            call("c1", 1, 2, "root", "a", [1], [2]),
            reward("r3", 3, 0.25, "root"),
            reward("r4", 10, 2.0, "root"),
        ]
    )


def reward_subtree() -> Spans:
    """A judge's calls under a reward are not the agent's calls."""
    return number(
        [
            span("root", "run", 0, 20),
            call("c1", 1, 2, "root", "a", [1], [2]),
            span(
                "judge",
                "agentlightning.operation",
                3,
                6,
                "root",
                {"agentlightning.operation.name": "agentlightning.reward"},
            ),
            call("c2", 4, 5, "judge", "b", [3], [4]),
            reward("r1", 5.5, 0.5, "judge"),
            call("c3", 5.6, 5.7, "r1", "c", [5], [6]),
            call("c4", 8, 9, "root", "d", [7], [8]),
        ]
    )


def duplicate_responses() -> Spans:
    """One reply seen by two instrumentations, nested and side by side, with an id and without."""
    return number(
        [
            span("root", "run", 0, 20),
            call("c1", 1, 4, "root", "same", [1], [2]),
            call("c2", 2, 3, "c1", "same", [1], [2]),
            call("c3", 2.1, 2.9, "c2", None, [1], [2]),
            call("c4", 5, 6, "root", None, [3], [4]),
            call("c5", 7, 8, "root", None, [5], [6]),
            call("c6", 7.1, 7.9, "c5", "other", [5], [6]),
            call("c7", 9, 10, "root", "other", [7], [8]),
            call("c8", 11, 12, "root", "", [9], [10]),
            call("c9", 13, 14, "root", "", [11], [12]),
        ]
    )


def legacy_rewards() -> Spans:
    """AgentOps outputs and the annotation of v0.2."""
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("k1", "task", {"agentops.task.output": '{"type": "reward", "value": 0.5}'}),
        ("k2", "task", {"agentops.entity.output": '{"type": "reward", "value": 2}'}),
        ("k3", "task", {"agentops.task.output": '{"type": "reward", "value": null}'}),
        ("k4", "task", {"agentops.task.output": '{"type": "text", "value": 1.0}'}),
        ("k5", "task", {"agentops.task.output": "not json"}),
        ("k6", "agentlightning.annotation", {"reward": 0.75}),
        ("k7", "agentlightning.reward", {"reward": 0.75}),
        ("k8", "agentlightning.annotation", {"note": "no reward"}),
        (
            "k9",
            "task",
            {"agentops.task.output": '{"type": "other"}', "agentops.entity.output": '{"type": "reward", "value": 3.5}'},
        ),
        ("k10", "task", {"agentops.task.output": "", "agentops.entity.output": "{}"}),
        (
            "k11",
            "agentlightning.annotation",
            {"agentlightning.reward.0.name": "x", "agentlightning.reward.0.value": 4, "reward": 9.5},
        ),
    ]
    spans: Spans = [span("root", "run", 0, 100)]
    for i, (key, name, attributes) in enumerate(kinds):
        spans.append(call(f"c{i}", 5 * i + 1, 5 * i + 2, "root", f"id{i}", [i], [i]))
        spans.append(span(key, name, 5 * i + 3, 5 * i + 3, "root", attributes))
    return number(spans)


def reward_dimensions() -> Spans:
    """Several dimensions; the first is the primary one. Values that spell a number are numbers."""
    return number(
        [
            span("root", "run", 0, 20),
            call("c1", 1, 2, "root", "a", [1], [2]),
            reward("r1", 3, {"accuracy": 1, "speed": 0.5}, "root"),
            call("c2", 4, 5, "root", "b", [1], [2]),
            reward("r2", 6, {"accuracy": "0.25", "speed": True}, "root"),
            call("c3", 7, 8, "root", "c", [1], [2]),
            reward("r3", 9, True, "root"),
        ]
    )


def reward_not_finite() -> Spans:
    """NaN as a reward reads as no reward; the golden file shows null where the reference has NaN."""
    return number([call("c1", 1, 2, None, "a", [1], [2]), reward("r1", 3, "NaN", "c1")])


def malformed_reward_map() -> Spans:
    """Reward attributes that are not a list of dimensions."""
    return number(
        [
            call("c1", 1, 2, None, "a", [1], [2]),
            span("r1", "x", 3, 3, "c1", {"agentlightning.reward.value": 1.0}),
        ]
    )


def malformed_reward_value() -> Spans:
    """A dimension without a value."""
    return number(
        [
            call("c1", 1, 2, None, "a", [1], [2]),
            span("r1", "x", 3, 3, "c1", {"agentlightning.reward.0.name": "primary"}),
        ]
    )


def malformed_reward_scalar() -> Spans:
    """The prefix itself used as the attribute."""
    return number(
        [call("c1", 1, 2, None, "a", [1], [2]), span("r1", "x", 3, 3, "c1", {"agentlightning.reward": 1.0})]
    )


def token_sources() -> Spans:
    """Where token ids may stand, and what is passed over."""
    out = "agentlightning.operation.output."
    kinds: list[dict[str, Any]] = [
        {"prompt_token_ids": [1, 2], "response_token_ids": [3]},
        {out + "prompt_token_ids": [4], out + "response_token_ids.0": [5]},
        {out + "prompt_token_ids": [4], out + "choices.0.token_ids": [6]},
        {out + "prompt_token_ids": [4], out + "choices.0.provider_specific_fields.token_ids": [7]},
        {"prompt_token_ids": "[1, 2]", out + "prompt_token_ids": [8], "response_token_ids": [1.5], out + "response_token_ids.0": [9]},
        {"prompt_token_ids": [], out + "prompt_token_ids": [8], "response_token_ids": ["a"]},
        {"prompt_token_ids": [1]},
        {"response_token_ids": [1]},
        {},
        {"prompt_token_ids": 7, "response_token_ids": [0]},
    ]
    spans: Spans = [span("root", "run", 0, 100)]
    for i, attributes in enumerate(kinds):
        spans.append(call(f"c{i}", 5 * i + 1, 5 * i + 2, "root", f"id{i}", attributes=attributes))
    spans.append(reward("r", 99, 1.0, "root"))
    return number(spans)


def weave() -> Spans:
    """Operation spans of the Weave tracer."""
    inp, out = "agentlightning.operation.input.", "agentlightning.operation.output."
    return number(
        [
            span("root", "run", 0, 20, None, {"type": "agent", inp + "name": "writer"}),
            span(
                "c1",
                "openai.chat.completions.create",
                1,
                2,
                "root",
                {
                    inp + "model": "tiny",
                    inp + "messages.0.role": "user",
                    inp + "messages.0.content": "hi",
                    inp + "temperature": 1.0,
                    out + "id": "chatcmpl-9",
                    out + "model": "tiny",
                    out + "choices.0.index": 0,
                    out + "choices.0.message.role": "assistant",
                    out + "choices.0.message.content": "hello",
                    out + "choices.0.token_ids": [5, 6],
                    out + "prompt_token_ids": [1, 2],
                    out + "response_token_ids.0": [5, 6],
                    out + "usage.total_tokens": 4,
                },
            ),
            reward("r1", 3, 0.5, "root"),
        ]
    )


def image_urls() -> Spans:
    """Pictures in prompts, in every shape in which a prompt comes."""
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "http://h/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": "http://h/not-an-object.png"},
        {"type": "image_url", "image_url": {"detail": "low"}},
        "text",
    ]
    text = json.dumps(parts)
    kinds: list[dict[str, Any]] = [
        {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": text},
        {"gen_ai.prompt.2.content": text, "gen_ai.prompt.10.content": text.replace("a.png", "b.png"), "gen_ai.prompt.note": "holes"},
        {"gen_ai.prompt.role": "user", "gen_ai.prompt.content": text},
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content.0.type": "image_url",
            "gen_ai.prompt.0.content.0.image_url.url": "http://h/c.png",
        },
        {"gen_ai.prompt.0.content": "[not json", "gen_ai.prompt.1.content": "plain", "gen_ai.prompt.2.content": '"a string"'},
        {"gen_ai.prompt.0": "scalar", "gen_ai.prompt.1.content": ["x", "y"]},
        {"gen_ai.prompt.prompt_filter_results": "x", "gen_ai.prompt.1.content": text, "gen_ai.prompt.1.role": "user"},
    ]
    spans: Spans = [span("root", "run", 0, 100)]
    for i, attributes in enumerate(kinds):
        one = span(f"c{i}", "openai.chat.completion", 5 * i + 1, 5 * i + 2, "root", attributes)
        spans.append(one)
    return number(spans)


def unflatten_edges() -> Spans:
    """Keys that clash, holes in indexes, leading zeros that are none."""
    kinds: list[dict[str, Any]] = [
        {"gen_ai.request.a": 1, "gen_ai.request.a.b": 2, "gen_ai.request.c.d": 3, "gen_ai.request.c": 4},
        {"gen_ai.request.0": "x", "gen_ai.request.1": "y"},
        {"gen_ai.request.1": "x", "gen_ai.request.2": "y"},
        {"gen_ai.request.x.1.k": "b", "gen_ai.request.x.0.k": "a", "gen_ai.request.x.2.k": "c"},
        {"gen_ai.requests.a": 1, "gen_ai.request.messages": "dropped"},
        {"gen_ai.request.": 1, "gen_ai.request..a": 2},
        {"gen_ai.response.choices": "dropped", "gen_ai.response.prompt_token_ids": [1], "gen_ai.response.kept": [1, 2]},
    ]
    spans: Spans = [span("root", "run", 0, 100)]
    for i, attributes in enumerate(kinds):
        spans.append(span(f"c{i}", "openai.chat.completion", 5 * i + 1, 5 * i + 2, "root", attributes))
    return number(spans)


def unflatten_prefix() -> Spans:
    """An attribute that is the prefix itself."""
    return number([span("c1", "openai.chat.completion", 1, 2, None, {"gen_ai.request": "x"})])


def unflatten_messages() -> Spans:
    """Messages of an operation that were not flattened."""
    key = "agentlightning.operation.input.messages"
    return number([span("c1", "openai.chat.completion", 1, 2, None, {key: "text"})])


def logprobs() -> Spans:
    """Log-probabilities as JSON text."""
    content = json.dumps([{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}, {"token": "b", "logprob": 0, "bytes": None}])
    return number(
        [
            span("root", "run", 0, 20),
            call("c1", 1, 2, "root", "a", [1], [2, 3], attributes={"logprobs.content": content}),
            call("c2", 3, 4, "root", "b", [1], [2, 3], attributes={"logprobs.content": [1.0, 2.0]}),
            call("c3", 5, 6, "root", "c", [1], [2, 3], attributes={"logprobs.content": "null"}),
        ]
    )


def logprobs_bad() -> Spans:
    """Log-probabilities that are not JSON."""
    return number([call("c1", 1, 2, None, "a", [1], [2], attributes={"logprobs.content": "oops"})])


def names_to_match() -> Spans:
    """Names that the patterns pick out."""
    return number(
        [
            span("root", "run", 0, 20),
            span("c1", "openai.chat.completion", 1, 2, "root"),
            span("c2", "openai.chat.completion.stream", 3, 4, "root"),
            span("c3", "openaiXchat.completion", 5, 6, "root"),
            span("c4", "anthropic.chat", 7, 8, "root"),
            span("c5", "generate", 9, 10, "root"),
            span("c6", "wrap openai.chat.completion", 11, 12, "root"),
        ]
    )


def messages_plain() -> Spans:
    """Roles and contents, and a call to a tool that has its own span."""
    return number(
        [
            call(
                "c1",
                1,
                5,
                None,
                "a",
                attributes={
                    "gen_ai.prompt.0.role": "system",
                    "gen_ai.prompt.0.content": "be kind",
                    "gen_ai.prompt.1.role": "user",
                    "gen_ai.prompt.1.content": "2+2?",
                    "gen_ai.prompt.2.role": "assistant",
                    "gen_ai.prompt.2.content": "let me see",
                    "gen_ai.prompt.3.role": "tool",
                    "gen_ai.prompt.3.content": "4",
                    "gen_ai.prompt.3.tool_call_id": "call-1",
                    "gen_ai.prompt.4.role": "developer",
                    "gen_ai.prompt.4.content": "",
                    "gen_ai.prompt.5.role": "user",
                    "gen_ai.completion.1.role": "user",
                    "gen_ai.completion.1.content": "ignored",
                    "gen_ai.request.functions.0.name": "add",
                    "gen_ai.request.functions.0.description": "adds",
                    "gen_ai.request.functions.0.parameters": '{"type": "object", "properties": {}}',
                    "gen_ai.request.functions.1.name": "nothing",
                    "gen_ai.request.functions.1.parameters.type": "object",
                },
            ),
            span(
                "t1",
                "tool",
                2,
                3,
                "c1",
                {
                    "tool.name": "add",
                    "tool.parameters": '{"a": 2, "b": 2}',
                    "tool.call.id": "call-2",
                    "tool.call.type": "function",
                },
            ),
            span("t2", "not a tool", 2, 3, "c1", {"other": 1}),
            call("c2", 6, 7, None, "b"),
            span("nothing", "step", 8, 9),
            span("request-only", "x", 8, 9, None, {"gen_ai.request.model": "m"}),
        ]
    )


def messages_tool_calls() -> Spans:
    """An assistant's tool calls inside a prompt, indexes with holes, keys beside the indexes."""
    return number(
        [
            span(
                "c1",
                "chat",
                1,
                2,
                None,
                {
                    "gen_ai.prompt.3.role": "assistant",
                    "gen_ai.prompt.3.content": "dropped",
                    "gen_ai.prompt.3.tool_calls.0.id": "x1",
                    "gen_ai.prompt.3.tool_calls.0.name": "add",
                    "gen_ai.prompt.3.tool_calls.0.arguments": "{}",
                    "gen_ai.prompt.3.tool_calls.5.id": "x2",
                    "gen_ai.prompt.3.tool_calls.5.name": "sub",
                    "gen_ai.prompt.3.tool_calls.5.arguments": '{"a": 1}',
                    "gen_ai.prompt.7.role": "tool",
                    "gen_ai.prompt.7.content": "3",
                    "gen_ai.prompt.7.tool_call_id": "x1",
                    "gen_ai.prompt.note": "dropped",
                    "gen_ai.completion.0.role": "assistant",
                },
            )
        ]
    )


def _message_case(doc: str, attributes: dict[str, Any], children: Spans | None = None):
    def build() -> Spans:
        return number([span("c1", "chat", 1, 2, None, attributes), *(children or [])])

    build.__doc__ = doc
    return build


_user = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "x"}
_done = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "y"}

messages_prompt_map = _message_case("A prompt that is no list.", {"gen_ai.prompt.role": "user"})
messages_completion_map = _message_case("A completion that is no list.", {"gen_ai.completion.role": "user"})
messages_request_list = _message_case("A request that is a list.", {"gen_ai.request.0": "user"})
messages_response_list = _message_case("A response that is a list.", {"gen_ai.response.0": "user"})
messages_no_role = _message_case("A message without a role.", {"gen_ai.prompt.0.content": "x"})
messages_bad_role = _message_case("A role that nobody has.", {**_user, "gen_ai.prompt.0.role": "wizard"})
messages_tool_without_id = _message_case("A tool's answer to no call.", {**_user, "gen_ai.prompt.0.role": "tool"})
messages_function_role = _message_case("A function message.", {**_user, "gen_ai.prompt.0.role": "function"})
messages_number_content = _message_case("Content that is a number.", {**_user, "gen_ai.prompt.0.content": 7})
messages_call_without_name = _message_case(
    "A tool call in a prompt that lacks its name.",
    {"gen_ai.prompt.0.role": "assistant", "gen_ai.prompt.0.tool_calls.0.id": "x"},
)
messages_tool_list = _message_case(
    "A tool span that is a list.", {**_user, **_done}, [span("t", "tool", 1, 2, "c1", {"tool.0.name": "x"})]
)
messages_tool_without_call = _message_case(
    "A tool span that lacks the call.", {**_user, **_done}, [span("t", "tool", 1, 2, "c1", {"tool.name": "x"})]
)
messages_tool_unused = _message_case(
    "An incomplete tool span is no fault where no completion needs it.",
    {**_user},
    [span("t", "tool", 1, 2, "c1", {"tool.name": "x"})],
)
messages_function_without_name = _message_case(
    "A function that lacks its name.", {**_user, "gen_ai.request.functions.0.parameters": "{}"}
)
messages_function_without_parameters = _message_case(
    "A function that lacks its parameters.", {**_user, "gen_ai.request.functions.0.name": "f"}
)
messages_function_bad_parameters = _message_case(
    "Parameters that are not JSON.",
    {**_user, "gen_ai.request.functions.0.name": "f", "gen_ai.request.functions.0.parameters": "{"},
)
messages_null_completion = _message_case(
    "A completion without content.", {**_user, "gen_ai.completion.0.role": "assistant"}
)
messages_scalar_prompt = _message_case("A message that is a string.", {"gen_ai.prompt.0": "hello"})
messages_assistant_prompt = _message_case(
    "An assistant's words in a prompt.", {**_user, "gen_ai.prompt.0.role": "assistant"}
)


def proxy_litellm() -> Spans:
    """Calls through LiteLLM in the shape that vLLM of today gives, rewards between."""
    return [
        *litellm("a", 1, 1, [1, 2, 3], [4, 5]),
        *litellm("b", 2, 2, [1, 2, 3, 4, 5, 6], [7]),
        reward("r1", 3, 0.5, None, sequence=3),
        *litellm("c", 4, 4, [1], [2]),
        reward("r2", 5, 1, None, sequence=5),
        reward("r3", 6, 0.25, None, sequence=6),
        reward("r4", 7, 0.125, None, sequence=7),
    ]


def proxy_old_vllm() -> Spans:
    """response_token_ids of older vLLM, which is preferred to the choices."""
    return [
        *litellm("a", 1, 1, [1], [9, 9], raw={"llm.hosted_vllm.response_token_ids": "[[4, 5], [6]]"}),
        *litellm("b", 2, 2, [1], [9], raw={"llm.hosted_vllm.response_token_ids": "[['x']]"}),
        *litellm("c", 3, 3, [1], [8], raw={"llm.hosted_vllm.response_token_ids": "[]"}),
        *litellm("d", 4, 4, [1], [7], raw={"llm.hosted_vllm.response_token_ids": "[[]]"}),
        *litellm("e", 5, 5, [1], [6], raw={"llm.hosted_vllm.response_token_ids": "[4, 5]"}),
        reward("r", 9, 2, None, sequence=9),
    ]


def proxy_sequence_order() -> Spans:
    """The sequence id decides, not the clock; an equal one is not smaller."""
    return [
        reward("r1", 0, 1.0, None, sequence=2),
        *litellm("b", 2, 1, [3], [4]),
        *litellm("a", 1, 50, [1], [2]),
        reward("r2", 0.5, 0.5, None, sequence=9),
        *litellm("c", 2, 0, [5], [6]),
        reward("r3", 99, 0.25, None, sequence=1),
    ]


def proxy_duplicates() -> Spans:
    """One reply stored twice, replies without an id, ids that are no text."""
    twice = litellm("a", 1, 1, [1], [2])
    again = litellm("a2", 2, 2, [1], [2], response="chatcmpl-a")
    nameless = litellm("b", 3, 3, [3], [4], raw={"llm.hosted_vllm.id": ""})
    nameless2 = litellm("c", 4, 4, [3], [4], raw={"llm.hosted_vllm.id": 7})
    return [*twice, *again, *nameless, *nameless2, reward("r", 5, 1.0, None, sequence=5)]


def proxy_openai_ids() -> Spans:
    """Token ids on litellm_request itself, as lists and as text, and twice for one reply."""
    return [
        *litellm("a", 1, 1, None, None, request={"prompt_token_ids": [1, 2], "response_token_ids": [3]}),
        *litellm("b", 2, 2, None, None, request={"prompt_token_ids": "[4]", "response_token_ids": "[5]"}),
        *litellm("c", 3, 3, [6], [7], request={"prompt_token_ids": [6], "response_token_ids": [7]}),
        *litellm("d", 4, 4, None, None, request={"prompt_token_ids": [1.5], "response_token_ids": [3]}),
        reward("r", 9, 1.0, None, sequence=9),
    ]


def proxy_no_ids() -> Spans:
    """A backend that gives no token ids."""
    return [*litellm("a", 1, 1, None, None), reward("r", 9, 1.0, None, sequence=9)]


def proxy_unreadable() -> Spans:
    """Strings that are neither JSON nor Python literals, and values of the wrong kind."""
    return [
        *litellm("a", 1, 1, None, [2], raw={"llm.hosted_vllm.prompt_token_ids": "[1, 2"}),
        *litellm("b", 2, 2, None, [2], raw={"llm.hosted_vllm.prompt_token_ids": "__import__('os')"}),
        *litellm("c", 3, 3, [1], None, raw={"llm.hosted_vllm.choices": "[{'token_ids': [1, 'x']}]"}),
        *litellm("d", 4, 4, [1], None, raw={"llm.hosted_vllm.choices": "{'token_ids': [1]}"}),
        *litellm("e", 5, 5, [1], None, raw={"llm.hosted_vllm.choices": "[[1]]"}),
        *litellm("f", 6, 6, [1], None, raw={"llm.hosted_vllm.choices": "[]"}),
        *litellm("h", 8, 8, None, [2], raw={"llm.hosted_vllm.prompt_token_ids": [5, 6]}),
    ]


def proxy_gateway() -> Spans:
    """The shape that our own proxy writes: Python literals, with response_token_ids always there."""
    spans: Spans = []
    conversation = [5, 6, 7]
    for i in range(3):
        reply = [20 + i, 30 + i]
        choices = [
            {
                "finish_reason": "stop",
                "index": 0,
                "logprobs": {
                    "content": [
                        {"bytes": [97], "logprob": -0.5 - i, "token": f"token_id:{one}", "top_logprobs": []}
                        for one in reply
                    ]
                },
                "message": {"content": "caf\u00e9 \U0001f600 'q' \\ \"d\"", "role": "assistant", "tool_calls": None},
                "token_ids": reply,
            }
        ]
        spans.extend(
            litellm(
                f"g{i}",
                i + 1,
                i,
                list(conversation),
                None,
                raw={
                    "llm.hosted_vllm.choices": repr(choices),
                    "llm.hosted_vllm.response_token_ids": repr([reply]),
                    "agentlightning.model.version": "rs-1",
                    "agentlightning.model.version_end": "rs-1" if i < 2 else "rs-2",
                },
            )
        )
        conversation += reply + [40 + i]
    spans.append(reward("r", 9, 1.0, None, sequence=9))
    return spans


SCENARIOS = {
    name: build
    for name, build in list(globals().items())
    if callable(build) and not name.startswith("_") and build.__module__ == __name__ and build.__doc__
}
