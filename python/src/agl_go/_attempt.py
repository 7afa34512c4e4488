"""The attempt of an agent: its task, its resources, its model and its ids."""

from __future__ import annotations

import json
import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional


class NoAttemptError(RuntimeError):
    """This process has no attempt: agl has not started it, or it is a kept process between two tasks."""


class ResourceError(LookupError):
    """The attempt has no resource of that name or type."""


@dataclass(frozen=True)
class Rollout:
    """The ids of the attempt."""

    rollout_id: str
    attempt_id: str
    mode: Optional[str]
    """"train", "val" or "test"; None if the rollout has no mode."""
    worker_id: Optional[str]
    """The runner that works on the attempt; None if it has no name."""
    store_url: Optional[str]
    """The URL of the store; None if the run does not serve it."""


@dataclass(frozen=True)
class LLM:
    """The model to call. Calls made at its URL are recorded as this attempt's."""

    base_url: str
    """For the OpenAI SDK; it ends in /v1."""
    api_key: str = field(repr=False)
    model: str
    sampling_parameters: Mapping[str, Any]
    """Further members for requests, set by the algorithm, such as {"temperature": 1.0}."""


own_variables: ContextVar[Optional[Mapping[str, str]]] = ContextVar("own_variables", default=None)
"""The environment of the attempt for which serve called the handler; tasks of asyncio that the handler starts inherit it."""


def variables() -> Mapping[str, str]:
    """The environment of the attempt.

    What an async handler has left running, such as the others of a gather of which one has failed, goes on during later attempts.
    It keeps the environment of its own, so that its rewards are not those of another attempt.
    """
    own = own_variables.get()
    if own is not None and own.get("AGL_ATTEMPT_ID") != os.environ.get("AGL_ATTEMPT_ID"):
        return own
    return os.environ


def task() -> Any:
    """The input of the task: a line of the task file, decoded from JSON.

    Raises NoAttemptError if the process has no attempt, and ValueError if AGL_TASK, set by hand, is not JSON.
    """
    path = variables().get("AGL_TASK_FILE")
    if path is None:
        # To try an agent by hand: AGL_TASK='{"question": "…"}' python agent.py
        text = _variable("AGL_TASK", "its task")
        try:
            return json.loads(text)
        except ValueError as err:
            raise ValueError(
                f"AGL_TASK is {text!r}, which is not JSON ({err}); JSON has text in double quotes, such as AGL_TASK='\"add 2 and 3\"'"
            ) from None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def resources() -> dict[str, dict[str, Any]]:
    """The attempt's resources by name, each decoded from JSON, such as {"resource_type": "prompt_template", "template": …}.

    Raises NoAttemptError if the process has no attempt.
    """
    with open(_variable("AGL_RESOURCES_FILE", "its resources"), encoding="utf-8") as f:
        found: dict[str, dict[str, Any]] = json.load(f)
    return found


def prompt(name: str) -> str:
    """The text of a prompt template in the resources. Its placeholders are not filled.

    Raises ResourceError if no template has the name, with a list of the names, and NoAttemptError if the process has no attempt.
    """
    templates = {n: r["template"] for n, r in resources().items() if r["resource_type"] == "prompt_template"}
    if name not in templates:
        raise ResourceError(f"no prompt template is named {name!r}; the resources hold {sorted(templates) or 'none'}")
    template: str = templates[name]
    return template


def llm() -> LLM:
    """The model of the attempt: the first one in the resources, at a URL that records its calls as this attempt's.

    Raises ResourceError if the resources have no model, and NoAttemptError if the process has no attempt.
    """
    sampling_parameters: Mapping[str, Any] = {}
    if "AGL_RESOURCES_FILE" in variables():  # it is not set for an agent that is tried by hand
        models = [r for r in resources().values() if r["resource_type"] in ("llm", "proxy_llm")]
        if not models:
            raise ResourceError("the resources name no model: give the run a proxy, or the store a resource of type llm or proxy_llm")
        sampling_parameters = models[0].get("sampling_parameters") or {}
    return LLM(
        base_url=_variable("OPENAI_BASE_URL", "its model"),
        api_key=_variable("OPENAI_API_KEY", "its model"),
        model=_variable("AGL_MODEL", "its model"),
        sampling_parameters=sampling_parameters,
    )


def rollout() -> Rollout:
    """The ids of the attempt. Raises NoAttemptError if the process has no attempt."""
    return Rollout(
        rollout_id=_variable("AGL_ROLLOUT_ID", "its rollout"),
        attempt_id=_variable("AGL_ATTEMPT_ID", "its rollout"),
        mode=variables().get("AGL_MODE"),
        worker_id=variables().get("AGL_WORKER_ID"),
        store_url=variables().get("AGL_STORE_URL"),
    )


def _variable(name: str, what: str) -> str:
    try:
        return variables()[name]
    except KeyError:
        raise NoAttemptError(f"{name} is not set, so this process cannot know {what}: {_remedy()}") from None


def _remedy() -> str:
    if os.environ.get("AGL_KEEPALIVE"):
        return "with keepalive it has an attempt only while agl_go.serve calls its handler; without keepalive, agl starts it for one attempt"
    return "start it by agl, such as `agl-go runner --store URL -- python agent.py`, or set the variable to try it by hand"
