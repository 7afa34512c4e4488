"""One process for many tasks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sys
import traceback
from typing import Any, Awaitable, BinaryIO, Callable, Iterator, Mapping, Optional, Union

from agl_go._attempt import task
from agl_go._emit import emit_reward, recorded
from agl_go._result import Reward, said

Handler = Callable[[Any], Union[None, Reward, Awaitable[Optional[Reward]]]]
"""Does a task, given its input, and returns its reward, or None if it has none or has called emit_reward. It may be async."""


def serve(handler: Handler) -> None:
    """Does tasks with the handler: in a kept process (`keepalive: stdio`) one after the other, otherwise the one of this process.

    While the handler runs, the rest of this package and the environment variables are about the attempt of its task. An async
    handler runs in one event loop for all tasks, so clients can be made once.

    In a kept process an exception fails the attempt, and the next task is taken. Standard output goes to standard error,
    because replies use standard output. serve returns when there are no more tasks. Without keepalive the handler is called
    once, and its exceptions are raised.

    Raises NoAttemptError when the process was not started by agl.
    """
    loop: Optional[asyncio.AbstractEventLoop] = None

    def call(value: Any) -> Optional[Reward]:
        nonlocal loop
        answer = handler(value)
        if not inspect.isawaitable(answer):
            return answer
        if loop is None:
            loop = asyncio.new_event_loop()
        return loop.run_until_complete(_await(answer))

    try:
        if os.environ.get("AGL_KEEPALIVE") == "stdio":
            _serve(call)
        else:
            reward = call(task())
            if reward is not None and not recorded(said(reward)):
                emit_reward(reward)
    finally:
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


async def _await(answer: Awaitable[Optional[Reward]]) -> Optional[Reward]:
    return await answer


def _serve(call: Callable[[Any], Optional[Reward]]) -> None:
    with _replies() as replies:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            with _environment(request["env"]):
                reply = _reply(call, request["task"])
            sys.stdout.flush()
            sys.stderr.flush()
            replies.write(json.dumps({"attempt_id": request["attempt_id"], **reply}).encode() + b"\n")
            replies.flush()


def _reply(call: Callable[[Any], Optional[Reward]], value: Any) -> Mapping[str, Any]:
    """The result of what the handler returns or raises. An empty result leaves it to the result file."""
    try:
        reward = call(value)
        return {} if reward is None or recorded(said(reward)) else said(reward)
    except Exception as err:
        traceback.print_exc()
        return {"error": "".join(traceback.format_exception_only(type(err), err)).strip()}


@contextlib.contextmanager
def _replies() -> Iterator[BinaryIO]:
    """Standard output for replies only: everything else that is printed goes to standard error."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(own, "wb", closefd=False) as replies:
            yield replies
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables, and restores them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
