"""Starts the programs under test, and the Python package's own store server beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from typing import Any, Awaitable, Callable, Iterator, TypeVar
from urllib.parse import quote

import aiohttp
import opentelemetry.trace
from agentlightning.store import InMemoryLightningStore, LightningStoreServer

DEADLINE = 30.0
"""Seconds after which a condition that the tests wait for counts as failed; nothing waits that long when all is well."""

CANARY = "canary-9c41e7a2"
"""It is in every token of these tests: no program may print it, and no store may have it."""

SECRET = "secret-" + CANARY
"""The token of servers that need one."""

T = TypeVar("T")


class Program:
    """A sub-command of agl that serves HTTP: started on a free port (or the one given), stopped by its process id.

    Its log is read as it comes; the line that says where it listens gives the URL. In the end neither the log nor what a
    store holds may have a secret.
    """

    def __init__(self, *args: str, env: dict[str, str] | None = None, port: int = 0):
        self._args = [os.environ["AGL_COMPAT_BINARY"], *args, "--port", str(port), "--log-format", "json"]
        self._env = env
        self.log: deque[str] = deque(maxlen=200)
        self.leaks: list[str] = []
        self.url = ""

    def __enter__(self) -> "Program":
        self._process = subprocess.Popen(
            self._args, env={**os.environ, "AGL_OIDC_CLIENT_SECRET": CANARY, **(self._env or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        urls: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(urls,), daemon=True)
        self._reader.start()
        try:
            url = urls.get(timeout=DEADLINE)
        except queue.Empty:
            url = None
        if url is None:
            self.__exit__()
            raise RuntimeError(f"{self._args} does not listen:\n" + "".join(self.log))
        self.url = url
        return self

    def _read(self, urls: "queue.SimpleQueue[str | None]") -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            if CANARY in line:
                self.leaks.append(line)
            try:
                entry = json.loads(line)
            except ValueError:  # not from the logger: a usage error
                continue
            if entry.get("msg", "").endswith(" listens"):
                urls.put(entry["url"])
        urls.put(None)

    def kill(self) -> None:
        """Ends it as a crash does: at once, with nothing written and nothing said."""
        self._process.kill()
        self._process.wait()

    def _read_api(self, path: str) -> str:
        request = urllib.request.Request(f"{self.url}/v1/agl/{path}")
        request.add_header("Authorization", "Bearer " + (self._env or {}).get("AGL_TOKEN", ""))
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            text = answer.read().decode()
        if (at := text.find(CANARY)) >= 0:
            self.leaks.append(f"{path}: {text[max(0, at - 200) : at + 200]}")
        return text

    def _look(self) -> None:
        """Looks for secrets in all that a store holds."""
        for path in ("resources?limit=-1", "workers?limit=-1", "audit", "runs?limit=-1"):
            self._read_api(path)
        for rollout in json.loads(self._read_api("rollouts?limit=-1"))["items"]:
            self._read_api(f"rollouts/{quote(rollout['rollout_id'], safe='')}/attempts?limit=-1")
            self._read_api(f"spans?limit=-1&rollout_id={quote(rollout['rollout_id'], safe='')}")

    def __exit__(self, *_: object) -> None:
        if self._args[1] == "store" and self.url and self._process.poll() is None:
            self._look()
        self._process.terminate()
        try:
            self._process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"{self._args} did not end on SIGTERM:\n" + "".join(self.log)) from None
        finally:
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
        if self.leaks:
            raise AssertionError(f"{self._args} has secrets in " + "\n".join(self.leaks))


@contextlib.contextmanager
def forked(target: Callable[..., None], *args: Any) -> Iterator[int]:
    """A process, by its id, that is killed in the end with whatever it has started."""
    process = multiprocessing.get_context("fork").Process(target=_lead, args=(target, *args))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.kill()
        process.join()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _lead(target: Callable[..., None], *args: Any) -> None:
    os.setpgid(0, 0)
    target(*args)


# UDP sockets that mark the ports of free_port(). They stay open until this process ends.
_marks: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody listens on, below the ephemeral ports. Its mark keeps the Go suites from choosing it, too."""
    while True:
        port = random.randint(10_000, 32_767)
        mark = socket.socket(type=socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as s:
            mark.bind(("127.0.0.1", port))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            _marks.append(mark)
            return port
        mark.close()


class PythonStore:
    """The Python package's store server over its in-memory store.

    It is a fork of this process, which has the package imported. It must not be a thread: FastAPI traces each request
    with the process's tracer, and where that one exports to the server itself both wait for each other.
    """

    async def __aenter__(self) -> "PythonStore":
        port = free_port()
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=(port,), daemon=True)
        self._process.start()
        self.url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:

            async def healthy() -> bool:
                try:
                    async with session.get(f"{self.url}/v1/agl/health") as r:
                        return r.status == 200
                except aiohttp.ClientError:
                    return False

            await until("the Python store's server answers", healthy, bool)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def _serve(port: int) -> None:
    # Not the tracer that a test of the parent has set.
    opentelemetry.trace._TRACER_PROVIDER = opentelemetry.trace.NoOpTracerProvider()
    store = InMemoryLightningStore(thread_safe=True, scan_debounce_seconds=0)
    asyncio.run(LightningStoreServer(store, host="127.0.0.1", port=port).run_forever())


async def until(what: str, probe: Callable[[], Awaitable[T]], done: Callable[[T], Any]) -> T:
    """Probes until done holds of the answer, which it returns."""
    end = time.monotonic() + DEADLINE
    while True:
        answer = await probe()
        if done(answer):
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {DEADLINE:g} s; the last answer was {answer!r}")
        await asyncio.sleep(0.01)
