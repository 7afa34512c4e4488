"""The result of an attempt: a reward or an error."""

from __future__ import annotations

import json
import math
import os
import tempfile
from typing import Any, Mapping, Optional, SupportsFloat, Union

from agl_go._attempt import _variable

Reward = Union[SupportsFloat, Mapping[str, SupportsFloat]]
"""A number, or a number for each dimension by its name."""


MAX_REASON = 10_000


def error(message: str) -> None:
    """Makes the attempt fail, whatever its reward and exit status are. The message says why.

    Raises NoAttemptError if the process has no attempt.
    """
    update({"error": reason(str(message)) or "the agent gives no reason"})


def reason(text: str) -> str:
    """Why an attempt failed, at a length that a result can have: its runner refuses one of more than 1 MiB."""
    return text if len(text) <= MAX_REASON else text[:MAX_REASON] + "…"


def reward_members(reward: Reward, primary: Optional[str] = None) -> dict[str, Any]:
    """A reward in the form of a result file: {"reward": 0.5} or {"rewards": {"accuracy": 1, …}}, the primary one first."""
    if not isinstance(reward, Mapping):
        if primary is not None:
            raise ValueError(f"primary is {primary!r}, but the reward has no dimensions")
        return {"reward": _number("the reward", reward)}
    if not reward:
        raise ValueError("the reward has no dimensions, must have at least one")
    names = list(reward)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a dimension of the reward is named {name!r}, must be a string")
    if primary is not None:
        if primary not in reward:
            raise ValueError(f"primary is {primary!r}, must be one of {names}")
        names.remove(primary)
        names.insert(0, primary)
    return {"rewards": {name: _number(f"the reward's dimension {name!r}", reward[name]) for name in names}}


def _number(what: str, value: SupportsFloat) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {value!r}, must be a number")
    try:
        number = float(value)
    except OverflowError as e:
        raise ValueError(f"{what} is too large for a float, must be finite") from e
    except Exception as e:  # such as arrays and tensors with several elements, each library with a type of its own
        raise TypeError(f"{what} is {value!r}, must be a number ({e})") from e
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}, must be finite")
    return number


def update(news: Mapping[str, Any]) -> None:
    """Updates members of the result file, which is replaced atomically."""
    path = _variable("AGL_RESULT_FILE", "where its result goes")
    try:
        with open(path, encoding="utf-8") as f:
            result = json.load(f)
    except FileNotFoundError:
        result = {}
    if "error" not in news:
        result.pop("reward", None)
        result.pop("rewards", None)
    result.update(news)
    handle, fresh = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix="result-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(result, f)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
