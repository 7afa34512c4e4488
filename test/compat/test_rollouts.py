"""Rollouts and attempts: every operation of the Python client, on both servers."""

from __future__ import annotations

import asyncio

from agentlightning.types import EnqueueRolloutRequest, PromptTemplate, RolloutConfig

from differential import ANY, DifferentialTest, Ours, Side
from programs import until

REFUSED = "an unknown id or an illegal state is 400, which clients do not retry, never 500"
UNKNOWN = Ours(REFUSED, {"<error>": (500, 400)})

INPUTS = {
    "object": {"z": 1, "a": {"c": [1, 2.0, None, True], "b": "x"}},
    "integral float": {"reward": 1.0, "count": 1, "small": 1e-7, "large": 1e300, "zero": -0.0},
    "integers beyond 64 bits": [2**63 - 1, 2**63, -(2**70), 10**30],
    "text": "grüße, 世界 \U0001f600 \u2028 \x00 \" \\ / <b>&amp;</b>",
    "keys": {"ключ": 1, "": 2, "a/b": 3, "a.b": 4, "__proto__": 5},
    "null": None,
    "false": False,
    "number": 0.1,
    "empty": {},
    "list": [[], {}, [None]],
    "deep": {"a": [{"b": [{"c": [{"d": [1.0]}]}]}]},
}


async def finish(s: Side, rollout_id: str, status: str = "succeeded") -> None:
    await s.store.update_attempt(rollout_id, "latest", status=status)


class Rollouts(DifferentialTest):
    async def test_inputs_come_back_as_they_were(self) -> None:
        async def script(s: Side) -> None:
            for name, value in INPUTS.items():
                r = await s.see(f"enqueue {name}", s.store.enqueue_rollout(value, metadata={"given": value}))
                await s.see(f"get {name}", s.store.get_rollout_by_id(r.rollout_id))
                await s.see(f"dequeue {name}", s.store.dequeue_rollout())
            for name, value in INPUTS.items():
                await s.see(f"start {name}", s.store.start_rollout(value))

        await self.compare(script)

    async def test_enqueue_and_dequeue(self) -> None:
        async def script(s: Side) -> None:
            await s.see("nothing queued", s.store.dequeue_rollout())
            await s.see("nothing queued, a worker", s.store.dequeue_rollout(worker_id="w"))
            config = RolloutConfig(timeout_seconds=60, unresponsive_seconds=60.5, max_attempts=3, retry_condition=["failed", "timeout"])
            await s.see("plain", s.store.enqueue_rollout({"n": 1}))
            await s.see("all fields", s.store.enqueue_rollout({"n": 2}, mode="train", resources_id="nowhere", config=config, metadata={"k": [1.0]}))
            many = [
                EnqueueRolloutRequest(input={"n": 3}, mode="val"),
                EnqueueRolloutRequest(input={"n": 4}, mode="test", config=config, metadata={}),
                EnqueueRolloutRequest(input={"n": 5}, resources_id="r"),
            ]
            await s.see("many", s.store.enqueue_many_rollouts(many))
            await s.see("none", s.store.enqueue_many_rollouts([]))
            await s.see("first", s.store.dequeue_rollout())
            await s.see("second, a worker", s.store.dequeue_rollout(worker_id="w-1"))
            await s.see("none asked", s.store.dequeue_many_rollouts(limit=0))
            await s.see("less than none asked", s.store.dequeue_many_rollouts(limit=-1))
            await s.see("two", s.store.dequeue_many_rollouts(limit=2, worker_id="w-2"))
            await s.see("the last of ten", s.store.dequeue_many_rollouts(limit=10))
            await s.see("an empty queue", s.store.dequeue_many_rollouts(limit=10))
            await s.see("workers", s.store.query_workers(sort_by="worker_id"))

        await self.compare(script)

    async def test_the_latest_resources_are_inherited(self) -> None:
        async def script(s: Side) -> None:
            await s.see("none yet", s.store.enqueue_rollout(1))
            await s.store.add_resources({"p": PromptTemplate(template="a", engine="f-string")})
            await s.see("enqueue", s.store.enqueue_rollout(2))
            await s.see("enqueue many", s.store.enqueue_many_rollouts([EnqueueRolloutRequest(input=3), EnqueueRolloutRequest(input=4)]))
            await s.see("start", s.store.start_rollout(5))
            await s.store.update_resources("mine", {"p": PromptTemplate(template="b", engine="jinja")})
            await s.see("an update becomes the latest", s.store.start_rollout(6))
            await s.see("named", s.store.start_rollout(7, resources_id="other"))

        await self.compare(script)

    async def test_start_rollout_and_attempts(self) -> None:
        async def script(s: Side) -> None:
            config = RolloutConfig(max_attempts=1)
            r = await s.see("start", s.store.start_rollout({"a": 1}, mode="val", config=config, metadata={"m": 1}, worker_id="w"))
            await s.see("its worker", s.store.get_worker_by_id("w"))
            await s.see("its attempt", s.store.get_latest_attempt(r.rollout_id))
            await s.see("second attempt", s.store.start_attempt(r.rollout_id))
            await s.see("third attempt", s.store.start_attempt(r.rollout_id, worker_id="w-2"))
            await s.see("attempts", s.store.query_attempts(r.rollout_id))
            await s.see("attempts, newest first", s.store.query_attempts(r.rollout_id, sort_order="desc"))
            await s.see("a page", s.store.query_attempts(r.rollout_id, limit=1, offset=1))
            await s.see("beyond the end", s.store.query_attempts(r.rollout_id, limit=2, offset=9))
            await s.see("by worker", s.store.query_attempts(r.rollout_id, sort_by="worker_id"))
            await s.see("not sorted", s.store.query_attempts(r.rollout_id, sort_by=None))
            await s.see("unknown field", s.store.query_attempts(r.rollout_id, sort_by="colour"))
            await s.see("limit 0", s.store.query_attempts(r.rollout_id, limit=0))
            await s.see("limit -2", s.store.query_attempts(r.rollout_id, limit=-2))
            await s.see("offset -1", s.store.query_attempts(r.rollout_id, offset=-1))
            await s.see("attempts of nobody", s.store.query_attempts("ro-000000000000"))
            await s.see("latest of nobody", s.store.get_latest_attempt("nobody"))
            await s.see("attempt of nobody", s.store.start_attempt("nobody"), UNKNOWN)
            await s.see("unknown rollout", s.store.get_rollout_by_id("nobody"))
            q = await s.see("queued", s.store.enqueue_rollout(1))
            await s.see("taken past the queue", s.store.start_attempt(q.rollout_id))
            await s.see("its queue entry is dead", s.store.dequeue_rollout())

        await self.compare(script)

    async def test_update_rollout(self) -> None:
        async def script(s: Side) -> None:
            config = RolloutConfig(max_attempts=2)
            r = await s.store.enqueue_rollout({"a": 1}, mode="train", resources_id="x", config=config, metadata={"m": 1})
            rid = r.rollout_id
            await s.see("nothing", s.store.update_rollout(rid))
            await s.see("input", s.store.update_rollout(rid, input={"b": 2.0}))
            await s.see("metadata is replaced", s.store.update_rollout(rid, metadata={"n": 2}))
            await s.see("config is replaced", s.store.update_rollout(rid, config=RolloutConfig(timeout_seconds=1000.5)))
            for name in ("input", "mode", "resources_id", "metadata"):
                await s.see(f"{name} null", s.store.update_rollout(rid, **{name: None}))
            await s.see("status null", s.store.update_rollout(rid, status=None))
            await s.see("unknown status", s.store.update_rollout(rid, status="lost"))
            await s.see("unknown mode", s.store.update_rollout(rid, mode="best"))
            await s.see("unknown rollout", s.store.update_rollout("nobody", input=1), UNKNOWN)
            await s.see("running by hand", s.store.update_rollout(rid, status="running"))
            await s.see("not in the queue", s.store.dequeue_rollout())
            await s.see("queuing by hand", s.store.update_rollout(rid, status="queuing"))
            await s.see("in the queue", s.store.dequeue_rollout())
            await s.see("requeuing by hand", s.store.update_rollout(rid, status="requeuing"))
            await s.see("twice is once", s.store.update_rollout(rid, status="requeuing"))
            await s.see("claimed", s.store.dequeue_rollout())
            await s.see("only once", s.store.dequeue_rollout())
            await s.see("succeeded by hand", s.store.update_rollout(rid, status="succeeded"))
            await s.see("failed by hand", s.store.update_rollout(rid, status="failed"))
            await s.see("attempts", s.store.query_attempts(rid))

        await self.compare(script)

    async def test_update_attempt(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            rid, aid = r.rollout_id, r.attempt.attempt_id
            await s.see("nothing", s.store.update_attempt(rid, aid))
            await s.see("worker", s.store.update_attempt(rid, "latest", worker_id="w"))
            await s.see("heartbeat", s.store.update_attempt(rid, aid, last_heartbeat_time=1234.5))
            await s.see("metadata", s.store.update_attempt(rid, aid, metadata={"x": {"y": 1.0}}))
            await s.see("running", s.store.update_attempt(rid, aid, status="running"))
            await s.see("the rollout runs", s.store.get_rollout_by_id(rid))
            await s.see("the worker is busy", s.store.get_worker_by_id("w"))
            for name in ("status", "worker_id", "last_heartbeat_time", "metadata"):
                await s.see(f"{name} null", s.store.update_attempt(rid, aid, **{name: None}))
            await s.see("a rollout's status", s.store.update_attempt(rid, aid, status="cancelled"))
            await s.see("unknown attempt", s.store.update_attempt(rid, "at-nothing", status="failed"), UNKNOWN)
            await s.see("unknown rollout", s.store.update_attempt("nobody", aid, status="failed"), UNKNOWN)
            await s.see("unknown rollout, latest", s.store.update_attempt("nobody", "latest", status="failed"), UNKNOWN)
            q = await s.store.enqueue_rollout(2)
            await s.see("no attempt yet", s.store.update_attempt(q.rollout_id, "latest", status="failed"), UNKNOWN)
            await s.see("succeeded", s.store.update_attempt(rid, aid, status="succeeded"))
            await s.see("the rollout succeeded", s.store.get_rollout_by_id(rid))
            await s.see("the worker is idle", s.store.get_worker_by_id("w"))
            await s.see("failed after all", s.store.update_attempt(rid, aid, status="failed"))
            await s.see("the rollout failed", s.store.get_rollout_by_id(rid))

        await self.compare(script)

    async def test_retries(self) -> None:
        async def script(s: Side) -> None:
            config = RolloutConfig(max_attempts=2, retry_condition=["failed"])
            r = await s.store.enqueue_rollout(1, config=config)
            rid = r.rollout_id
            await s.see("first", s.store.dequeue_rollout(worker_id="w"))
            await s.see("it fails", s.store.update_attempt(rid, "latest", status="failed"))
            await s.see("requeued", s.store.get_rollout_by_id(rid))
            await s.see("not finished", s.store.wait_for_rollouts(rollout_ids=[rid], timeout=0))
            await s.see("second", s.store.dequeue_rollout(worker_id="w"))
            await s.see("the first changes its mind", s.store.update_attempt(rid, (await s.store.query_attempts(rid))[0].attempt_id, status="succeeded"))
            await s.see("which does not count", s.store.get_rollout_by_id(rid))
            await s.see("it fails again", s.store.update_attempt(rid, "latest", status="failed"))
            await s.see("that was the last", s.store.get_rollout_by_id(rid))
            await s.see("the queue is empty", s.store.dequeue_rollout())
            await s.see("by hand", s.store.start_attempt(rid), REOPENED)
            await s.see("which succeeds", s.store.update_attempt(rid, "latest", status="succeeded"))
            await s.see("attempts", s.store.query_attempts(rid))
            await s.see("finished", s.store.wait_for_rollouts(rollout_ids=[rid], timeout=0))

        await self.compare(script)

    async def test_deadlines(self) -> None:
        async def script(s: Side) -> None:
            slow = await s.store.start_rollout("slow", config=RolloutConfig(timeout_seconds=0.05), worker_id="w")
            mute = await s.store.start_rollout("mute", config=RolloutConfig(unresponsive_seconds=0.05))
            again = await s.store.start_rollout("again", config=RolloutConfig(timeout_seconds=0.05, max_attempts=2, retry_condition=["timeout"]))
            for name, r, status in (("timeout", slow, "failed"), ("unresponsive", mute, "failed"), ("retry", again, "requeuing")):
                await s.see(name, until(name, lambda r=r: s.store.get_rollout_by_id(r.rollout_id), lambda x, status=status: x.status == status), ENDED)
            await s.see("the worker is not idle", s.store.get_worker_by_id("w"))
            # Long enough for the second attempt to live.
            await s.store.update_rollout(again.rollout_id, config=RolloutConfig(timeout_seconds=1000.0))
            await s.see("claimed again", s.store.dequeue_rollout())
            await s.see("both", s.store.query_attempts(again.rollout_id), ENDED_FIRST)
            await s.see("too late, and still counted", s.store.update_attempt(slow.rollout_id, "latest", status="succeeded"))
            await s.see("the rollout succeeded", s.store.get_rollout_by_id(slow.rollout_id))

        await self.compare(script)

    async def test_cancelled(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1, worker_id="w")
            rid = r.rollout_id
            await s.see("cancel", s.store.update_rollout(rid, status="cancelled"))
            await s.see("its attempt", s.store.get_latest_attempt(rid), CANCELLED_ATTEMPT)
            await s.see("its worker", s.store.get_worker_by_id("w"), CANCELLED_WORKER)
            await s.see("finished", s.store.wait_for_rollouts(rollout_ids=[rid], timeout=0))
            await s.see("a late success", s.store.update_attempt(rid, "latest", status="succeeded"), LATE_SUCCESS)
            await s.see("the rollout", s.store.get_rollout_by_id(rid), CANCELLED_FINAL)

        await self.compare(script)

    async def test_queries(self) -> None:
        async def script(s: Side) -> None:
            made = [await s.store.enqueue_rollout(i, mode=("train", "val", None)[i % 3]) for i in range(7)]
            for r in made[:4]:
                await s.store.dequeue_rollout(worker_id=f"w{r.input}")
            await finish(s, made[0].rollout_id)
            await finish(s, made[1].rollout_id, "failed")
            ids = [r.rollout_id for r in made]
            query = s.store.query_rollouts
            await s.see("all", query())
            await s.see("by status", query(status_in=["queuing", "failed"]))
            await s.see("by one status", query(status_in=["succeeded"]))
            await s.see("by no status", query(status_in=[]))
            await s.see("old names", query(status=["queuing"], rollout_ids=ids[4:6]))
            await s.see("by id", query(rollout_id_in=[ids[5], ids[0], "nobody"]))
            await s.see("by no id", query(rollout_id_in=[]))
            await s.see("by a part of the id", query(rollout_id_contains=ids[2][3:11]))
            await s.see("by a part that none has", query(rollout_id_contains="zzz"))
            await s.see("and", query(status_in=["queuing"], rollout_id_in=ids[:5]))
            await s.see("or", query(status_in=["succeeded"], rollout_id_in=[ids[6]], filter_logic="or"))
            await s.see("or without filters", query(filter_logic="or"))
            await s.see("a page", query(limit=3, offset=2))
            await s.see("a page past the end", query(limit=3, offset=99))
            await s.see("the rest", query(limit=-1, offset=5))
            await s.see("by mode", query(sort_by="mode"))
            await s.see("by mode, descending", query(sort_by="mode", sort_order="desc"))
            await s.see("by status then as inserted", query(sort_by="status"))
            await s.see("by end", query(sort_by="end_time", limit=2))
            await s.see("by end, descending", query(sort_by="end_time", sort_order="desc"))
            await s.see("by start, descending", query(sort_by="start_time", sort_order="desc", limit=2))
            await s.see("unknown field", query(sort_by="colour"))
            await s.see("unknown order", query(sort_by="mode", sort_order="up"))
            await s.see("unknown logic", query(filter_logic="xor"))
            await s.see("unknown status", query(status_in=["lost"]))
            await s.see("limit 0", query(limit=0))
            await s.see("offset -1", query(offset=-1))

        await self.compare(script)

    async def test_waits(self) -> None:
        async def script(s: Side) -> None:
            made = [await s.store.enqueue_rollout(i) for i in range(3)]
            ids = [r.rollout_id for r in made]
            wait = s.store.wait_for_rollouts
            await s.see("none finished", wait(rollout_ids=ids, timeout=0))
            await s.see("none finished, a moment", wait(rollout_ids=ids, timeout=0.1))
            await s.see("a negative moment", wait(rollout_ids=ids, timeout=-1))
            await s.see("none asked", wait(rollout_ids=[], timeout=None))
            await s.see("unknown ones are not waited for", wait(rollout_ids=["nobody"], timeout=None))
            await s.see("too long for this client", wait(rollout_ids=ids, timeout=0.2))
            await s.store.update_rollout(ids[0], status="succeeded")
            await s.see("one of three", wait(rollout_ids=ids, timeout=0))
            await s.see("twice the same", wait(rollout_ids=[ids[0], "nobody", ids[0]], timeout=0))
            blocked = asyncio.ensure_future(wait(rollout_ids=[ids[2], ids[1]], timeout=None))
            await s.store.dequeue_many_rollouts(limit=3)
            await finish(s, ids[1], "failed")
            await s.store.update_rollout(ids[2], status="cancelled")
            await s.see("until both have finished, in the order asked", blocked)

        await self.compare(script)


REOPENED = Ours("reopening a finished rollout clears its end", {"end_time": ("<now>", None)})
OUTCOME = "the attempt's metadata says why it ended"
ENDED = Ours(f"a deadline ends the attempt; {OUTCOME}", {"attempt/end_time": (None, "<now>"), "attempt/metadata": (None, ANY)})
ENDED_FIRST = Ours(ENDED.why, {"items/0/end_time": (None, "<now>"), "items/0/metadata": (None, ANY)})
CANCELLED = {"agentlightning.outcome": {"kind": "cancelled", "message": "the rollout was cancelled"}}
CANCELLED_ATTEMPT = Ours(
    f"cancelling ends the live attempt; {OUTCOME}",
    {"status": ("preparing", "failed"), "end_time": (None, "<now>"), "metadata": (None, CANCELLED)},
)
CANCELLED_WORKER = Ours(
    "cancelling frees the worker",
    {
        "status": ("busy", "idle"),
        "current_rollout_id": ("<ro 1>", None),
        "current_attempt_id": ("<at 1>", None),
        "last_idle_time": (None, "<now>"),
    },
)
LATE_SUCCESS = Ours(OUTCOME, {"metadata": (None, CANCELLED)})
CANCELLED_FINAL = Ours(f"cancelled is final; {OUTCOME}", {"status": ("succeeded", "cancelled"), "attempt/metadata": (None, CANCELLED)})
