"""What dies under way: a Python runner, and our store under a Python client."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import unittest
from pathlib import Path
from typing import Any

import agentlightning as agl
from agentlightning.emitter import find_final_reward
from agentlightning.store import LightningStoreClient
from agentlightning.types import AttemptedRollout, PromptTemplate, RolloutConfig

from programs import Program, forked, free_port, until
from test_runner import run_forever
from test_spans import span


@agl.rollout
def stuck_once(task: dict[str, Any], prompt_template: PromptTemplate) -> float:
    """An agent that gets stuck in its first attempt."""
    agl.emit_message("under way")
    marker = Path(task["marker"])
    if not marker.exists():
        marker.touch()
        signal.pause()
    return 1.0


class Runner(unittest.IsolatedAsyncioTestCase):
    async def test_a_runner_that_is_killed(self) -> None:
        """Its rollout is retried by another runner once nothing has been heard of it for a while."""
        with tempfile.TemporaryDirectory() as folder, Program("store", "--db", f"sqlite:{folder}/agl.db") as server:
            store = LightningStoreClient(server.url)
            self.addAsyncCleanup(store.close)
            await store.add_resources({"p": PromptTemplate(template="", engine="f-string")})
            config = RolloutConfig(unresponsive_seconds=5.0, max_attempts=2, retry_condition=["unresponsive"])
            marker = Path(folder, "marker")
            made = await store.enqueue_rollout({"marker": str(marker)}, config=config)

            async def running() -> bool:
                [attempt] = await store.query_attempts(made.rollout_id)
                return attempt.status == "running" and marker.exists()

            with forked(run_forever, server.url, stuck_once) as pid:
                await until("the first attempt runs", lambda: attempts(store, made.rollout_id), bool)
                await until("it is under way", running, bool)
                os.kill(pid, signal.SIGKILL)
            with forked(run_forever, server.url, stuck_once):
                await until("the rollout ends", lambda: store.get_rollout_by_id(made.rollout_id), lambda r: r and r.status == "succeeded")
            first, second = await store.query_attempts(made.rollout_id)
            self.assertEqual((first.status, second.status), ("unresponsive", "succeeded"))
            for attempt, reward in ((first, None), (second, 1.0)):
                spans = await store.query_spans(made.rollout_id, attempt.attempt_id)
                self.assertEqual([s.name for s in spans][0], "agentlightning.message")
                self.assertEqual(find_final_reward(spans), reward)


async def attempts(store: LightningStoreClient, rollout_id: str) -> list[Any]:
    return list(await store.query_attempts(rollout_id))


class Store(unittest.IsolatedAsyncioTestCase):
    """A store on disk that is killed again and again under one client and its many tasks."""

    KILLS, LANES, ROUNDS = 3, 6, 20
    # A claim whose answer was lost with the server is nobody's until the attempt counts as unresponsive.
    CONFIG = RolloutConfig(unresponsive_seconds=2.0, max_attempts=10, retry_condition=["unresponsive"])

    async def asyncSetUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.command = ("store", "--db", f"sqlite:{folder}/agl.db")
        self.port = free_port()
        self.enqueued: set[str] = set()
        self.claims: list[tuple[str, str]] = []
        self.spans: set[tuple[str, str]] = set()
        self.store = LightningStoreClient(f"http://127.0.0.1:{self.port}", retry_delays=(0.02,) * 50, health_retry_delays=(0.05,) * 200)
        self.addAsyncCleanup(self.store.close)

    async def test_a_store_that_is_killed(self) -> None:
        server = await asyncio.to_thread(Program(*self.command, port=self.port).__enter__)
        try:
            lanes = asyncio.gather(*(self.lane(n) for n in range(self.LANES)))
            for kill in range(1, self.KILLS + 1):
                goal = kill * self.LANES * self.ROUNDS // (self.KILLS + 1)
                await until(f"{goal} rollouts are enqueued", self.progress, lambda n: n >= goal)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.__exit__)
                server = await asyncio.to_thread(Program(*self.command, port=self.port).__enter__)
            await lanes
            await until("every rollout is done", self.unfinished, lambda left: not left)
            await self.check()
        finally:
            await asyncio.to_thread(server.__exit__)

    async def progress(self) -> int:
        return len(self.enqueued)

    async def unfinished(self) -> list[str]:
        """Does what is in the queue again and says which rollouts are not done."""
        while claimed := await self.store.dequeue_rollout():
            await self.do(claimed)
        return [r.rollout_id for r in await self.store.query_rollouts() if r.status != "succeeded"]

    async def lane(self, number: int) -> None:
        for n in range(self.ROUNDS):
            self.enqueued.add((await self.store.enqueue_rollout([number, n], config=self.CONFIG)).rollout_id)
            if claimed := await self.store.dequeue_rollout(worker_id=f"w-{number}"):
                await self.do(claimed)

    async def do(self, r: AttemptedRollout) -> None:
        self.claims.append((r.rollout_id, r.attempt.attempt_id))
        for _ in range(2):
            n = await self.store.get_next_span_sequence_id(r.rollout_id, r.attempt.attempt_id)
            own = span(r, n, span_id=f"{r.attempt.attempt_id[3:]}{n:08x}")
            await self.store.add_span(own)  # None where a first try got through, though its answer did not
            self.spans.add((r.rollout_id, own.span_id))
        await self.store.update_attempt(r.rollout_id, r.attempt.attempt_id, status="succeeded")

    async def check(self) -> None:
        """What the store has acknowledged is there."""
        rollouts = {r.rollout_id: r for r in await self.store.query_rollouts()}
        self.assertLessEqual(self.enqueued, set(rollouts))
        self.assertEqual(len(self.claims), len(set(self.claims)), "attempts that were handed out twice")
        stored = [(r, s.span_id) for r in rollouts for s in await self.store.query_spans(r)]
        self.assertEqual(len(stored), len(set(stored)), "spans that are there twice")
        self.assertLessEqual(self.spans, set(stored))
