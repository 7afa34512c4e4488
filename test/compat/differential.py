"""Runs one script of store operations against the Python package's server and against ours, and compares what it saw.

A script is `async def script(s: Side)`. Whatever it passes to `s.see` is written to the side's transcript: answers with
their types, key order and kinds of numbers, or the error that was raised. Ids and times of the day differ by nature, so
they are masked: an id becomes the n-th one of its kind that the side saw, a time becomes `<now>`.

Where we decide otherwise than the Python server does, the step says so with `Ours`: both answers are spelled out, so that a
step fails when either side changes its mind, and so that the list of deviations is the tests themselves.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import re
import time
import unittest
from dataclasses import dataclass, field
from typing import Any, Awaitable, Callable, Mapping, Sequence

import aiohttp
from agentlightning.store import LightningStore, LightningStoreClient
from agentlightning.types import PaginatedResult
from pydantic import BaseModel

from programs import Program, PythonStore

ANY = "<any>"
"""In `Ours`: whatever it is."""
ABSENT = "<absent>"
"""In `Ours`: there is no such key."""


@dataclass
class Ours:
    """A deviation: at each path of the outcome ("" is all of it) the reference's value, then ours."""

    why: str
    at: Mapping[str, tuple[Any, Any]]


@dataclass
class Step:
    what: str
    outcome: Any
    ours: Ours | None


@dataclass
class Mask:
    """Replaces what differs by nature. It is one side's, as it counts the ids that the side saw."""

    patterns: Sequence[str] = (r"\bro-[0-9a-f]{12}\b", r"\bat-[0-9a-f]{8}\b", r"\brs-[0-9a-f]{12}\b")
    started: float = field(default_factory=time.time)
    ids: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, BaseException):
            return self._error(value)
        if isinstance(value, PaginatedResult):
            return {k: self(getattr(value, k)) for k in ("items", "limit", "offset", "total")}
        if isinstance(value, BaseModel):
            return {"<type>": type(value).__name__, **{k: self(v) for k, v in value.__dict__.items()}, **self(value.model_extra or {})}
        if isinstance(value, Mapping):
            return {self(k): self(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(v) for v in value]
        if isinstance(value, str):
            for pattern in self.patterns:
                value = re.sub(pattern, self._id, value)
            return value
        if isinstance(value, float) and abs(value - self.started) < 3600:
            return "<now>"
        return value

    def _id(self, match: "re.Match[str]") -> str:
        text = match.group()
        kind = text[:2] if "-" in text else str(len(text))
        if text not in self.ids:
            self.ids[text] = f"<{kind} {sum(v.startswith(f'<{kind} ') for v in self.ids.values()) + 1}>"
        return self.ids[text]

    def _error(self, err: BaseException) -> Any:
        if isinstance(err, aiohttp.ClientResponseError):
            return {"<error>": err.status}
        return {"<error>": type(err).__name__, "message": self(str(err))}


class Recorder:
    """A store client that notes which of its operations were called."""

    called: set[str] = set()

    def __init__(self, client: LightningStoreClient):
        self._client = client

    def __getattr__(self, name: str) -> Any:
        Recorder.called.add(name)
        return getattr(self._client, name)

    @staticmethod
    def missed() -> list[str]:
        """The operations of a store that no script called."""
        operations = {n for n, f in vars(LightningStore).items() if not n.startswith("_") and (inspect.isfunction(f) or isinstance(f, property))}
        return sorted(operations - Recorder.called)


class Side:
    """One of the two servers, as a script sees it."""

    def __init__(self, name: str, url: str, mask: Mask):
        self.name = name
        self.url = url
        # No retries: the script sees an error as it is, at once.
        self.client = LightningStoreClient(url, retry_delays=(), health_retry_delays=())
        self.store: Any = Recorder(self.client) if name == "ours" else self.client
        self.mask = mask
        self.steps: list[Step] = []
        self._session: aiohttp.ClientSession | None = None

    async def see(self, what: str, value: Any, ours: Ours | None = None) -> Any:
        """Writes what a call answers, or raises, to the transcript, and returns it (None if it raised)."""
        error: BaseException | None = None
        if inspect.isawaitable(value):
            try:
                value = await value
            except (aiohttp.ClientError, ValueError, TypeError, RuntimeError, asyncio.TimeoutError) as err:
                value, error = None, err
        self.steps.append(Step(what, self.mask(value if error is None else error), ours))
        return value

    async def raw(self, method: str, path: str, *, body: bytes | None = None, ours: Ours | None = None, what: str = "", view: Callable[[Any], Any] = lambda x: x, **options: Any) -> Any:
        """Sends a plain request and sees its status, content type and (through view) its body; JSON is parsed, its key order kept."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.request(method, self.url + path, data=body, **options) as r:
            text = await r.read()
            kind = r.headers.get("Content-Type", "").split(";")[0]
            content: Any = text.hex()
            if kind == "application/json":
                content = json.loads(text)
            elif kind.startswith("text/"):
                content = text.decode()
            self.steps.append(Step(what or f"{method} {path}", self.mask({"status": r.status, "type": kind, "body": view(content)}), ours))
            return content

    async def close(self) -> None:
        await self.client.close()
        if self._session is not None:
            await self._session.close()


Script = Callable[[Side], Awaitable[None]]


class DifferentialTest(unittest.IsolatedAsyncioTestCase):
    """A test that runs scripts on both sides."""

    maxDiff = None

    async def compare(self, script: Script, mask: Callable[[], Mask] = Mask) -> None:
        """Runs the script on a fresh server of either kind and fails at each step whose outcomes differ."""
        with Program("store", "--db", "memory:") as ours:
            async with PythonStore() as python:
                sides = [Side("reference", python.url, mask()), Side("ours", ours.url, mask())]
                try:
                    for side in sides:
                        try:
                            await script(side)
                        except Exception as err:
                            err.add_note(f"in the script, against {side.name}, after step {side.steps[-1].what if side.steps else None!r}")
                            raise
                finally:
                    for side in sides:
                        await side.close()
        reference, ours_ = (s.steps for s in sides)
        self.assertEqual([s.what for s in reference], [s.what for s in ours_], "the script took another way")
        for theirs, mine in zip(reference, ours_, strict=True):
            with self.subTest(step=theirs.what):
                self._compare_step(theirs, mine)

    def _compare_step(self, theirs: Step, mine: Step) -> None:
        expected, got = spell(theirs.outcome), spell(mine.outcome)
        deviation = theirs.ours
        if deviation is None:
            if expected != got:
                self.fail(f"{theirs.what}: ours differs from the reference\n" + diff(expected, got))
            return
        reference, ours = theirs.outcome, mine.outcome
        for path, (was, is_) in deviation.at.items():
            for side, outcome, want in (("the reference", reference, was), ("ours", ours, is_)):
                value = lookup(outcome, path)
                if want is not ANY and spell(value) != spell(want):
                    self.fail(f"{theirs.what}: {side} at {path!r} is {spell(value)}, the listed deviation says {spell(want)}")
            reference, ours = replace(reference, path), replace(ours, path)
        if spell(reference) != spell(ours):
            self.fail(f"{theirs.what}: differs elsewhere than the listed deviation\n" + diff(spell(reference), spell(ours)))


def spell(value: Any) -> str:
    """The JSON of a value, in which 1, 1.0 and true differ and the order of keys counts."""
    return json.dumps(value, indent=1, ensure_ascii=True, default=repr)


def diff(reference: str, ours: str) -> str:
    return "\n".join(difflib.unified_diff(reference.splitlines(), ours.splitlines(), "reference", "ours", lineterm="", n=4))


def keys(path: str) -> list[str]:
    return [k for k in path.split("/") if k]


def lookup(value: Any, path: str) -> Any:
    for key in keys(path):
        if isinstance(value, list):
            if int(key) >= len(value):
                return ABSENT
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return ABSENT
    return value


def replace(value: Any, path: str) -> Any:
    """The value without what is at the path."""
    if not keys(path):
        return None
    head, *rest = keys(path)
    if isinstance(value, list) and int(head) < len(value):
        return [replace(v, "/".join(rest)) if i == int(head) else v for i, v in enumerate(value)]
    if isinstance(value, dict) and head in value:
        if not rest:
            return {k: v for k, v in value.items() if k != head}
        return {k: replace(v, "/".join(rest)) if k == head else v for k, v in value.items()}
    return value
