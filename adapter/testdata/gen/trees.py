"""Random traces. Times are mostly small integers, so that ties and equal intervals are common."""

import random
from typing import Any

from spans import span

NAMES = ["openai.chat.completion", "openai.chat.completion", "step", "step", "tool"]
AGENTS = ["writer", "critic", "editor"]

# Options that every random trace is run with.
OPTIONS: list[dict[str, Any]] = [
    {},
    {"repair_hierarchy": False},
    {"reward_match": "first_sibling"},
    {"reward_match": "first_sibling", "repair_hierarchy": False},
    {"agent_match": "writer|editor"},
    {"exclude_llm_call_in_reward": False},
    {"reward_match": "final"},
]


def times(rng: random.Random, kind: int) -> tuple[float, float]:
    match kind:
        case 0:  # few integers
            start = rng.randrange(8)
            return start, start + rng.randrange(6)
        case 1:  # tenths, whose sums round
            start = rng.randrange(40) / 10
            return start, start + rng.randrange(30) / 10
        case 2:  # moments of today
            start = 1760706315.0 + rng.random() * 10
            return start, start + rng.random() ** 3 * 10
        case _:  # intervals that may run backwards
            return rng.randrange(6), rng.randrange(6)


def tree(rng: random.Random) -> list[dict[str, Any]]:
    size = rng.randrange(1, 26)
    kind = rng.choice([0, 0, 0, 1, 1, 2, 3])
    flat = rng.random() < 0.4  # most spans under one parent
    orphans = rng.choice([0, 0, 0.1, 0.4])
    roots = rng.choice([0, 0, 0.1, 0.4])
    spans: list[dict[str, Any]] = []
    for i in range(size):
        start, end = times(rng, kind)
        parent: str | None = None
        if i and rng.random() >= roots:
            if rng.random() < orphans:
                parent = f"lost{rng.randrange(3)}"
            else:
                parent = "s0" if flat and rng.random() < 0.8 else f"s{rng.randrange(i)}"
        name = rng.choice(NAMES)
        attributes: dict[str, Any] = {}
        if name.startswith("openai"):
            if rng.random() < 0.7:
                attributes["gen_ai.response.id"] = f"id{rng.randrange(12)}"
        elif rng.random() < 0.35:
            attributes["agent.name"] = rng.choice(AGENTS)
        if rng.random() < 0.2:
            attributes["agentlightning.reward.0.name"] = "primary"
            attributes["agentlightning.reward.0.value"] = float(i)
        elif rng.random() < 0.05:
            name = "agentlightning.operation"
            attributes["agentlightning.operation.name"] = "agentlightning.reward"
        spans.append(span(f"s{i}", name, start, end, parent, attributes, epoch=0.0))
    if rng.random() < 0.7:
        rng.shuffle(spans)
    for i, one in enumerate(spans):
        one["sequence_id"] = i + 1
    return spans


def compact(spans: list[dict[str, Any]]) -> list[list[Any]]:
    """[span id, parent id, name, start, end, attributes] of each span."""
    return [[s["span_id"], s["parent_id"], s["name"], s["start_time"], s["end_time"], s["attributes"]] for s in spans]


def proxy(rng: random.Random) -> list[dict[str, Any]]:
    """Calls and rewards with sequence ids that repeat and clocks that mean nothing."""
    spans: list[dict[str, Any]] = []
    for i in range(rng.randrange(1, 16)):
        sequence, start = rng.randrange(1, 12), float(rng.randrange(5))
        if rng.random() < 0.45:
            attributes = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": float(i)}
            spans.append(span(f"s{i}", "agentlightning.annotation", start, start, None, attributes, sequence, epoch=0.0))
            continue
        attributes = {
            "llm.hosted_vllm.id": f"id{rng.randrange(12)}" if rng.random() < 0.8 else "",
            "llm.hosted_vllm.prompt_token_ids": repr([i]),
            "llm.hosted_vllm.response_token_ids": repr([[i]] if rng.random() < 0.9 else [[]]),
        }
        spans.append(span(f"s{i}", "raw_gen_ai_request", start, start, None, attributes, sequence, epoch=0.0))
    return spans


def flattened(rng: random.Random) -> dict[str, Any]:
    """Dotted keys that clash now and then."""
    parts = ["0", "1", "2", "10", "a", "b", ""]
    weights = [5, 4, 2, 1, 3, 2, 1]
    attributes: dict[str, Any] = {}
    for i in range(rng.randrange(1, 9)):
        depth = rng.randrange(1, 4)
        key = ".".join(rng.choices(parts, weights, k=depth))
        attributes[f"p.{key}"] = i
    return attributes
