"""Many Python processes at one store at once: nothing is lost, nothing is handed out twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import tempfile
import unittest
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from agentlightning.store import LightningStoreClient
from agentlightning.types import AttemptedRollout, PromptTemplate, RolloutConfig

from programs import DEADLINE, Program
from test_spans import span

PROCESSES, LANES, ROUNDS = 8, 2, 8
TWICE = RolloutConfig(max_attempts=2, retry_condition=["failed"])


@dataclass
class Report:
    """What one process was told."""

    enqueued: dict[str, int] = field(default_factory=dict)
    """How often each rollout must be claimed."""
    claimed: list[tuple[str, str]] = field(default_factory=list)
    spans: list[tuple[str, str, int, str]] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)


class Processes(unittest.IsolatedAsyncioTestCase):
    async def test_mixed_operations(self) -> None:
        with tempfile.TemporaryDirectory() as folder, Program("store", "--db", f"sqlite:{folder}/agl.db") as server:
            reports = await asyncio.to_thread(work_in_processes, server.url)
            store = LightningStoreClient(server.url)
            self.addAsyncCleanup(store.close)

            want = {r: n for report in reports for r, n in report.enqueued.items()}
            self.assertEqual(len(want), PROCESSES * LANES * ROUNDS)
            claims = Counter(claim for report in reports for claim in report.claimed)
            self.assertEqual([c for c, n in claims.items() if n > 1], [], "attempts that were handed out twice")
            self.assertEqual(Counter(rollout for rollout, _ in claims), want, "how often each rollout was handed out")

            acknowledged = {rollout: Counter[tuple[str, int, str]]() for rollout in want}
            for report in reports:
                for rollout, *rest in report.spans:
                    acknowledged[rollout][tuple(rest)] += 1
            for rollout, theirs in acknowledged.items():
                stored = await store.query_spans(rollout)
                self.assertEqual(Counter((s.attempt_id, s.sequence_id, s.span_id) for s in stored), theirs, f"spans of {rollout}")
                self.assertEqual([s.sequence_id for s in stored], list(range(1, len(stored) + 1)), f"sequence ids of {rollout}")

            rollouts = await store.query_rollouts()
            self.assertEqual({r.rollout_id: r.status for r in rollouts}, dict.fromkeys(want, "succeeded"))
            made = [r for report in reports for r in report.resources]
            self.assertEqual(len(set(made)), len(made))
            self.assertEqual({r.resources_id for r in await store.query_resources()}, {*made, "shared"})
            shared = await store.get_resources_by_id("shared")
            self.assertEqual(shared.version, len(made), "each update is a version")
            self.assertEqual([w.worker_id for w in await store.query_workers(sort_by="worker_id")], [f"w-{n}" for n in range(PROCESSES)])


def work_in_processes(url: str) -> list[Report]:
    context = multiprocessing.get_context("fork")
    # This process handles SIGTERM, by which the pool ends its processes. They would inherit that: one that is just about to wait would go
    # on waiting.
    with context.Pool(PROCESSES, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
        return pool.starmap_async(work_in_this_process, [(url, n) for n in range(PROCESSES)], chunksize=1).get(timeout=2 * DEADLINE)


def work_in_this_process(url: str, number: int) -> Report:
    return asyncio.run(work(url, number))


async def work(url: str, number: int) -> Report:
    """Enqueues and does rollouts, its own and others', in lanes that share a client."""
    store, report = LightningStoreClient(url), Report()
    try:
        await asyncio.gather(*(lane(store, number, report) for _ in range(LANES)))
    finally:
        await store.close()
    return report


async def lane(store: LightningStoreClient, number: int, report: Report) -> None:
    worker = f"w-{number}"
    for n in range(ROUNDS):
        twice = n % 4 == 0
        made = await store.enqueue_rollout({"by": number, "fails": twice}, mode="train", config=TWICE if twice else None)
        report.enqueued[made.rollout_id] = 2 if twice else 1
        if n % 4 == 1:
            prompt: Any = {"p": PromptTemplate(template=f"{number} {n}", engine="f-string")}
            report.resources.append((await store.add_resources(prompt)).resources_id)
            await store.update_resources("shared", prompt)
        await store.update_worker(worker, heartbeat_stats={"round": n})
        if claimed := await store.dequeue_rollout(worker_id=worker):
            await do(store, claimed, report)
    # Whoever enqueues drains afterwards, so that nothing is left.
    while claimed := await store.dequeue_rollout(worker_id=worker):
        await do(store, claimed, report)


async def do(store: LightningStoreClient, r: AttemptedRollout, report: Report) -> None:
    rollout_id, attempt_id = r.rollout_id, r.attempt.attempt_id
    report.claimed.append((rollout_id, attempt_id))
    own = (rollout_id, attempt_id)
    # Concurrently, as an exporter's thread and the runner do.
    single, many = await asyncio.gather(store.get_next_span_sequence_id(*own), store.get_many_span_sequence_ids([own] * 3))
    spans = [span(r, n, span_id=f"{attempt_id[3:]}{n:08x}") for n in [single, *many]]
    added, rest = await asyncio.gather(store.add_span(spans[0]), store.add_many_spans(spans[1:]))
    for s in [added, *rest]:
        assert s is not None
        report.spans.append((s.rollout_id, s.attempt_id, s.sequence_id, s.span_id))
    seen = {s.span_id for s in await store.query_spans(rollout_id, attempt_id)}
    assert seen == {s.span_id for s in spans}, "what was written is read"
    fails = r.input["fails"] and r.attempt.sequence_id == 1
    await store.update_attempt(rollout_id, attempt_id, status="failed" if fails else "succeeded", metadata={"by": rollout_id})
