"""The reference library, made deterministic, behind functions that answer JSON.

Run with the interpreter of test/compat/venv.sh.
"""

import json
import logging
import math
import os
from typing import Any, Iterable

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import agentlightning.adapter.triplet as triplet
from agentlightning.adapter import LlmProxyTraceToTriplet, TraceToMessages, TracerTraceToTriplet
from agentlightning.emitter.reward import find_final_reward, get_reward_value
from agentlightning.types import Span

logging.disable(logging.CRITICAL)


class OrderedSet(dict):
    """A set that keeps the order of insertion.

    The reference subtracts one set of span ids from another and makes the rest roots, in whatever order the hash seed
    gives. Ours is the order in which the ids are first named as a parent, so that is what the golden files hold.
    """

    def __init__(self, items: Iterable[Any] = ()):
        super().__init__((item, None) for item in items)

    def __sub__(self, other: Iterable[Any]) -> "OrderedSet":
        return OrderedSet(item for item in self if item not in other)

    def add(self, item: Any) -> None:
        self[item] = None


triplet.set = OrderedSet  # type: ignore[attr-defined]


def plain(value: Any) -> Any:
    """What JSON can say of a value: a float that is not finite becomes null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (str, int, bool)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [plain(item) for item in value]


def attempt(call: Any) -> Any:
    """The call's answer, or the kind of exception that it raised."""
    try:
        return plain(call())
    except Exception as error:  # every exception is an answer here
        return {"error": type(error).__name__}


def parse(spans: list[dict[str, Any]]) -> list[Span]:
    return [Span.model_validate(span) for span in spans]


def tracer(spans: list[Span], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Triplets of the tracer adapter. reward_match "final" is to_trajectory's final_reward, which no constructor takes."""
    options = dict(options)
    if options.get("reward_match") != "final":
        return [t.model_dump() for t in TracerTraceToTriplet(**options).adapt(spans)]
    options.pop("reward_match")
    repair = options.pop("repair_hierarchy", True)
    tree = triplet.TraceTree.from_spans(spans)
    if repair:
        tree.repair_hierarchy()
    found = tree.to_trajectory(reward_match="none", final_reward=find_final_reward(spans), **options)  # type: ignore
    return [t.model_dump() for t in found]


def proxy(spans: list[Span]) -> list[dict[str, Any]]:
    return [t.model_dump() for t in LlmProxyTraceToTriplet().adapt(spans)]


def messages(spans: list[Span]) -> list[Any]:
    return list(TraceToMessages().adapt(spans))


def rewards(spans: list[Span]) -> list[Any]:
    return [attempt(lambda: get_reward_value(span)) for span in spans]


def final_reward(spans: list[Span]) -> Any:
    return find_final_reward(spans)


def tree_names(spans: list[Span], repair: bool) -> Any:
    """Nested [span id, children], with "virtual-root" for the root that stands for several."""
    tree = triplet.TraceTree.from_spans(spans)
    if repair:
        tree.repair_hierarchy()

    def nested(node: Any) -> Any:
        return [node.id, [nested(child) for child in node.children]]

    return nested(tree)


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
