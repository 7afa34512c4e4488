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

from agl_go._attempt import own_variables, task, variables
from agl_go._emit import emit_reward
from agl_go._result import Reward, reason, reward_members, update

Handler = Callable[[Any], Union[None, Reward, Awaitable[Optional[Reward]]]]
"""Does a task, given its input. Returns its reward, or None if it has emitted its last reward or gives none. It may be async."""


def serve(handler: Handler) -> None:
    """Calls the handler for tasks: in a kept process (`keepalive: stdio`) one after the other, otherwise for the only task.

    During a call the rest of this package and the environment variables belong to the attempt of that task. An async handler
    runs in one event loop for all tasks, so that it can keep its clients. For what it leaves running there, this package belongs
    to the attempt that has begun it. In a thread it belongs to the attempt that runs at that moment, so wait for threads that emit before you return.

    A returned reward is one more besides those that the handler has emitted: return None for what was emitted.

    In a kept process an exception of the handler fails the attempt, sys.exit() ends it without a failure, and the next task
    follows. sys.exit(status) fails the attempt and ends the process. Standard output goes to standard error, and standard input
    is empty, because they carry the tasks and replies. serve returns when there are no more tasks. Without keepalive the
    handler is called once, and its exceptions are raised.

    Raises NoAttemptError if the process has no attempt. Where an event loop runs already, as in a notebook, the handler cannot be async.
    """
    loop: Optional[asyncio.AbstractEventLoop] = None

    def call(value: Any) -> Optional[Reward]:
        nonlocal loop
        answer = handler(value)
        if not inspect.isawaitable(answer):
            return answer
        if loop is None:
            loop = _new_loop(answer)
        return loop.run_until_complete(_await(answer))

    try:
        if os.environ.get("AGL_KEEPALIVE") == "stdio":
            _serve(call)
        else:
            reward = call(task())
            if reward is not None:
                emit_reward(reward)
    finally:
        if loop is not None:
            left = asyncio.all_tasks(loop)
            for one in left:
                one.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def _new_loop(answer: Awaitable[Optional[Reward]]) -> asyncio.AbstractEventLoop:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()
    if inspect.iscoroutine(answer):
        answer.close()
    raise RuntimeError(
        "serve is called while an event loop runs, and an async handler needs one of its own: "
        "call serve outside of asyncio.run, in a program and not in a notebook"
    )


async def _await(answer: Awaitable[Optional[Reward]]) -> Optional[Reward]:
    return await answer


def _serve(call: Callable[[Any], Optional[Reward]]) -> None:
    process = os.getpid()
    with _channels() as (requests, replies):
        for line in requests:
            request = json.loads(line)
            with _environment(request["env"]):
                reply = _reply(call, request["task"], process)
            sys.stdout.flush()
            sys.stderr.flush()
            if os.getpid() != process:
                os._exit(1 if "error" in reply else 0)  # the handler has forked this process: tasks and replies are its parent's
            replies.write(json.dumps({"attempt_id": request["attempt_id"], **reply}).encode() + b"\n")
            replies.flush()


def _reply(call: Callable[[Any], Optional[Reward]], value: Any, process: int) -> Mapping[str, Any]:
    """Calls the handler and returns the result of the attempt. If it is empty, the result file counts."""
    try:
        reward = call(value)
        members = {} if reward is None else reward_members(reward)
        if members and os.getpid() == process and os.path.exists(variables()["AGL_RESULT_FILE"]):
            update(members)  # an error that is reported there counts
            return {}
        return members
    except SystemExit as done:
        if done.code:
            raise
        return {}  # as without keepalive, the rewards are those that were emitted
    except (Exception, asyncio.CancelledError) as err:  # nobody else cancels the handler, so it has awaited what was cancelled
        traceback.print_exc()
        return {"error": reason("".join(traceback.format_exception_only(type(err), err)).strip())}


@contextlib.contextmanager
def _channels() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Yields standard input for tasks and standard output for replies.

    Everything else that is printed goes to standard error, and whatever else reads, such as ssh and ffmpeg, finds the end of its
    input: it would take the next task, or wait for it.
    """
    sys.stdout.flush()
    requests_fd, replies_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        with os.fdopen(requests_fd, "rb", closefd=False) as requests, os.fdopen(replies_fd, "wb", closefd=False) as replies:
            yield requests, replies
    finally:
        sys.stdout.flush()
        for own, standard in ((requests_fd, 0), (replies_fd, 1)):
            os.dup2(own, standard)
            os.close(own)


@contextlib.contextmanager
def _environment(attempt: Mapping[str, str]) -> Iterator[None]:
    """Sets the variables of an attempt, and restores them afterwards."""
    before = {name: os.environ.get(name) for name in attempt}
    os.environ.update(attempt)
    own = own_variables.set(dict(os.environ))
    try:
        yield
    finally:
        own_variables.reset(own)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
