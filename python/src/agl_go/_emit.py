"""Emissions of an agent during its attempt: rewards, messages, objects and exceptions."""

from __future__ import annotations

import http.client
import json
import secrets
import time
import traceback
import urllib.error
import urllib.request
from typing import Any, Mapping, Optional

from agl_go._attempt import NoAttemptError, _variable, variables
from agl_go._result import Reward, reward_members, update

# As long as runners and algorithms wait for a store or a proxy that is started again.
RETRY_SECONDS = 60.0
TIMEOUT_SECONDS = 60.0


class EmitError(RuntimeError):
    """The proxy did not record what the agent emitted."""


def emit_reward(reward: Reward, *, primary: Optional[str] = None) -> None:
    """Records a reward for the work of the attempt so far: a number, or a number for each dimension.

    If the model is behind agl's proxy, the reward is recorded at once, after the model calls that have ended and before the next
    one. So a call after each step rewards each step. The last reward is also that of the whole attempt. Without such a proxy only
    the last call counts.

    Algorithms learn from the primary dimension: the first one, unless `primary` names another. Several processes of the
    attempt may call it, one after the other. Scalars of NumPy and PyTorch are numbers, and True is 1.
    Raises ValueError for a number that is not finite, TypeError for anything that is not a number, EmitError if the proxy
    refuses the reward or does not answer, and NoAttemptError if the process has no attempt.
    """
    news = reward_members(reward, primary)
    if not _post(news):
        update(news)


def emit_message(message: str) -> None:
    """Records a message for people, such as a log line. Raises NoAttemptError without a proxy, and EmitError if that fails."""
    _record({"message": str(message)})


def emit_object(value: Any) -> None:
    """Records a value that has a JSON form. Raises NoAttemptError without a proxy, and EmitError if that fails."""
    _record({"object": value})


def emit_exception(error: BaseException) -> None:
    """Records an exception with its stack. Raises NoAttemptError without a proxy, and EmitError if that fails."""
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        message = str(error)
    except Exception:  # it is recorded even if its __str__ fails, as traceback does
        message = f"<{type(error).__qualname__} has no text: its __str__ fails>"
    _record({"exception": {"type": type(error).__qualname__, "message": message, "stacktrace": stack}})


def _record(body: Mapping[str, Any]) -> None:
    if variables().get("AGL_KEEPALIVE") and not variables().get("AGL_EMIT_URL"):
        _variable("AGL_ATTEMPT_ID", "where to record this")
    if not _post(body):
        at = variables().get("AGL_EMIT_URL")
        raise NoAttemptError(
            (f"AGL_EMIT_URL is {at}, where nothing is recorded" if at else "AGL_EMIT_URL is not set, so nothing is recorded")
            + ": start this process by agl, such as `agl-go runner --store URL -- python agent.py`, with a model behind agl's proxy"
        )


def _post(body: Mapping[str, Any]) -> bool:
    """Sends one emission. Returns False if there is no proxy that records emissions."""
    env = variables()
    url = env.get("AGL_EMIT_URL")
    if not url:
        return False
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + env.get("AGL_EMIT_KEY", "none")}
    if "TRACEPARENT" in env:
        headers["traceparent"] = env["TRACEPARENT"]
    # Because of the span's id, a repeated request is recorded once.
    data = json.dumps({**body, "span_id": secrets.token_hex(8)}, allow_nan=False).encode()
    deadline, delay = time.monotonic() + RETRY_SECONDS, 0.5
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=TIMEOUT_SECONDS) as answer:
                answer.read()
            return True
        except urllib.error.HTTPError as err:
            with err:
                text = err.read(4096).decode("utf-8", "replace")
            if err.code in (404, 405):
                return False  # another product's proxy, or one without a store
            if err.code < 500 or time.monotonic() + delay >= deadline:
                raise EmitError(f"{url} answers {err.code}: {text}") from None
        except (OSError, http.client.HTTPException) as err:
            if time.monotonic() + delay >= deadline:
                raise EmitError(f"{url} does not answer: {err}") from err
        time.sleep(delay)
        delay = min(2 * delay, 4.0)
