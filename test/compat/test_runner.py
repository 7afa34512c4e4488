"""The Python package's runner and trainer, executing agents against both stores: what arrives is the same."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import tempfile
import traceback
import unittest
from collections import Counter
from typing import Any, Sequence

import agentlightning as agl
import opentelemetry.trace
import opentelemetry.util._once
from agentlightning.algorithm import Baseline
from agentlightning.emitter import find_final_reward
from agentlightning.execution.events import ThreadingEvent
from agentlightning.store import LightningStoreClient
from agentlightning.types import LLM, PromptTemplate, ProxyLLM, Rollout, RolloutConfig

from differential import DifferentialTest, Mask, Side
from programs import DEADLINE, SECRET, Program, forked, until

TRACE_IDS = (r"\b[0-9a-f]{32}\b", r"\b[0-9a-f]{16}\b")


class RunnerMask(Mask):
    """Trace and span ids are random here."""

    def __init__(self) -> None:
        super().__init__()
        self.patterns = (*self.patterns, *TRACE_IDS)


def forget_tracer_provider() -> None:
    """OpenTelemetry lets a process set its tracer provider only once; each test needs a new one."""
    opentelemetry.trace._TRACER_PROVIDER = None
    opentelemetry.trace._TRACER_PROVIDER_SET_ONCE = opentelemetry.util._once.Once()


def fresh_tracer() -> agl.OtelTracer:
    """A tracer with a provider of its own."""
    forget_tracer_provider()
    return agl.OtelTracer()


@agl.rollout
def answer(task: dict[str, Any], prompt_template: PromptTemplate, rollout: Rollout) -> float | None:
    """An agent that traces, emits everything that can be emitted, and does what its task says."""
    with opentelemetry.trace.get_tracer("agent").start_as_current_span("work") as span:
        span.set_attribute("prompt", prompt_template.format(**task))
        span.add_event("thought", {"n": 1})
        with agl.operation(name="tool", depth=2):
            agl.emit_message("grüße")
            agl.emit_object({"a": [1, 2.0]})
        agl.emit_annotation({"nested": {"k": [1.0, 2.0]}, "mode": rollout.mode or "none"})
    match task["do"]:
        case "raise":
            raise ValueError("the agent gives up")
        case "return":
            return 0.5
        case "dimensions":
            agl.emit_reward({"accuracy": 1.0, "style": 0.25}, primary_key="accuracy")
        case _:
            agl.emit_reward(1.0)
    return None


async def run(store: LightningStoreClient, agent: agl.LitAgent[Any], count: int, tracer: agl.Tracer | None = None, hooks: Sequence[agl.Hook] = ()) -> None:
    """Runs an agent's rollouts until count of them were executed."""
    runner: agl.LitAgentRunner[Any] = agl.LitAgentRunner(tracer=tracer or fresh_tracer(), max_rollouts=count, poll_interval=0.01, interval_jitter=0.0, heartbeat_interval=0)
    with runner.run_context(agent=agent, store=store, hooks=hooks):
        await runner.iter()


def run_forever(url: str, agent: agl.LitAgent[Any]) -> None:
    """Runs an agent's rollouts until the process is ended, with heartbeats."""
    store = LightningStoreClient(url)
    runner: agl.LitAgentRunner[Any] = agl.LitAgentRunner(tracer=fresh_tracer(), poll_interval=0.05, interval_jitter=0.0, heartbeat_interval=0.1)
    with runner.run_context(agent=agent, store=store):
        asyncio.run(runner.iter())


class Runner(DifferentialTest):
    async def test_rollouts_of_an_agent(self) -> None:
        async def script(s: Side) -> None:
            await s.store.add_resources({"p": PromptTemplate(template="solve {do}!", engine="f-string")})
            todo = [("emit", "train"), ("return", "val"), ("dimensions", "test"), ("raise", None)]
            made = [await s.store.enqueue_rollout({"do": do}, mode=mode) for do, mode in todo]
            retried = await s.store.enqueue_rollout({"do": "raise"}, config=RolloutConfig(max_attempts=2, retry_condition=["failed"]))
            await run(s.client, answer, len(todo) + 2)
            for (do, _), r in zip([*todo, ("retried", None)], [*made, retried], strict=True):
                await s.see(f"rollout {do}", s.store.get_rollout_by_id(r.rollout_id))
                spans = await s.see(f"spans of {do}", s.store.query_spans(r.rollout_id, "latest"))
                await s.see(f"reward of {do}", find_final_reward(spans))
                await s.see(f"attempts of {do}", s.store.query_attempts(r.rollout_id))
            await s.see("its worker", s.store.query_workers())

        await self.compare(script, RunnerMask)

    async def test_a_step(self) -> None:
        async def script(s: Side) -> None:
            runner: agl.LitAgentRunner[Any] = agl.LitAgentRunner(tracer=fresh_tracer(), heartbeat_interval=0)
            with runner.run_context(agent=answer, store=s.client):
                resources: Any = {"p": PromptTemplate(template="{do}", engine="f-string")}
                r = await s.see("step", runner.step({"do": "emit"}, resources=resources, mode="val"))
                await s.see("a step that fails", runner.step({"do": "raise"}))
            await s.see("spans", s.store.query_spans(r.rollout_id))

        await self.compare(script, RunnerMask)

    async def test_learning_without_an_end(self) -> None:
        """The documents' continuous learning: a service reports its work by itself, and an algorithm polls for what is new and updates what the service works with."""

        @agl.rollout
        async def serve(task: str, prompt_template: PromptTemplate) -> float:
            agl.emit_message(prompt_template.format(user=task))
            return 1.0 if prompt_template.template.startswith("please") else 0.0

        async def script(s: Side) -> None:
            await s.store.update_resources("live", {"p": PromptTemplate(template="now, {user}", engine="f-string")})
            service: agl.LitAgentRunner[Any] = agl.LitAgentRunner(tracer=fresh_tracer(), heartbeat_interval=0)
            learned: set[str] = set()
            with service.run_context(agent=serve, store=s.client):
                for period, users in enumerate((["ada", "bob", "eve"], ["ada", "bob"])):
                    for user in users:
                        await service.step(user)
                    done = await s.store.query_rollouts(status_in=["succeeded"], sort_by="start_time")
                    new = [r for r in done if r.rollout_id not in learned]
                    learned |= {r.rollout_id for r in new}
                    await s.see(f"rollouts of period {period}", new)
                    rewards = []
                    for r in new:
                        spans = await s.see(f"spans of {r.input} in period {period}", s.store.query_spans(r.rollout_id))
                        rewards.append(find_final_reward(list(spans)))
                    await s.see(f"rewards of period {period}", rewards)
                    if not any(rewards):
                        await s.see("update", s.store.update_resources("live", {"p": PromptTemplate(template="please, {user}", engine="f-string")}))
            self.assertEqual((period, rewards), (1, [1.0, 1.0]))

        await self.compare(script, RunnerMask)

    async def test_an_agent_with_a_model(self) -> None:
        """A ProxyLLM is handed to the agent with its rollout and attempt in the URL."""

        @agl.llm_rollout
        async def agent(task: Any, llm: LLM, rollout: Rollout) -> float:
            agl.emit_object({"endpoint": llm.endpoint, "model": llm.model, "parameters": llm.sampling_parameters, "key": llm.api_key})
            return float(task)

        async def script(s: Side) -> None:
            await s.store.add_resources({"m": ProxyLLM(endpoint="http://proxy/v1/", model="m", sampling_parameters={"temperature": 1.0, "n": 1})})
            r = await s.store.enqueue_rollout(1)
            await run(s.client, agent, 1)
            await s.see("rollout", s.store.get_rollout_by_id(r.rollout_id))
            await s.see("spans", s.store.query_spans(r.rollout_id))

        await self.compare(script, RunnerMask)

    async def test_a_heartbeat(self) -> None:
        with Program("store", "--db", "memory:") as server:
            store = LightningStoreClient(server.url)
            await store.add_resources({"p": PromptTemplate(template="{do}", engine="f-string")})
            stop = ThreadingEvent()
            runner: agl.LitAgentRunner[Any] = agl.LitAgentRunner(tracer=fresh_tracer(), poll_interval=0.01, interval_jitter=0.0, heartbeat_interval=0.05)
            with runner.run_context(agent=answer, store=store):
                running = asyncio.ensure_future(runner.iter(event=stop))
                worker = await until("heartbeat", lambda: store.get_worker_by_id("Worker-0"), lambda w: w and w.heartbeat_stats)
                stop.set()
                await running
            self.assertIn("cpu_cores", worker.heartbeat_stats)
            await store.close()


class Trainer(unittest.IsolatedAsyncioTestCase):
    """The Python trainer's client-server strategy with a store that somebody else runs: ours."""

    def test_baseline_over_an_external_store(self) -> None:
        with Program("store", "--db", "memory:", env={"AGL_TOKEN": SECRET}) as server:
            url = server.url.replace("//", f"//agl:{SECRET}@")
            self.assertIsNone(in_a_process(train, url), "the trainer's process")

            async def check() -> None:
                store = LightningStoreClient(url)
                rollouts = await store.query_rollouts(sort_by="start_time")
                self.assertEqual([(r.status, r.mode, r.resources_id) for r in rollouts], [("succeeded", "train", "default")] * 2 + [("succeeded", "val", "default")])
                for r in rollouts:
                    spans = await store.query_spans(r.rollout_id)
                    self.assertEqual(find_final_reward(list(spans)), 1.0)
                    self.assertIn("work", [x.name for x in spans])
                    self.assertEqual({x.resource.attributes["agentlightning.rollout_id"] for x in spans}, {r.rollout_id})
                await store.close()

            asyncio.run(check())

    async def test_an_algorithm_and_runners_that_meet_at_the_store(self) -> None:
        """The roles as processes of their own, as on two machines: the algorithm first, then two runners."""
        with tempfile.TemporaryDirectory() as folder, Program("store", "--db", f"sqlite:{folder}/agl.db") as server:
            algorithm = asyncio.create_task(asyncio.to_thread(in_a_process, train, server.url, "algorithm", 150, 50, deadline=8 * DEADLINE))
            store = LightningStoreClient(server.url)
            self.addAsyncCleanup(store.close)
            await until("the algorithm posts its resources", lambda: store.get_resources_by_id("default"), bool)
            with forked(train, server.url, "runner"):
                self.assertIsNone(await algorithm, "the algorithm's process")
            rollouts = await store.query_rollouts()
            self.assertEqual(Counter((r.status, r.mode) for r in rollouts), {("succeeded", "train"): 150, ("succeeded", "val"): 50})
            spans = {r.rollout_id: await store.query_spans(r.rollout_id) for r in rollouts}
            counts = Counter(tuple(s.name for s in of_one) for of_one in spans.values())
            self.assertEqual(len(counts), 1, f"every rollout leaves the same spans: {counts}")
            for of_one in spans.values():
                self.assertEqual(find_final_reward(list(of_one)), 1.0)
                self.assertEqual([s.sequence_id for s in of_one], list(range(1, len(of_one) + 1)))
            workers = await store.query_workers(sort_by="worker_id")
            self.assertEqual([(w.worker_id, w.status) for w in workers], [("Worker-0", "idle"), ("Worker-1", "idle")])


def trainer_at(url: str, role: str, **components: Any) -> agl.Trainer:
    """A trainer as a user has it who runs the store elsewhere."""
    return agl.Trainer(
        n_runners=2,
        store=LightningStoreClient(url),
        strategy={"type": "cs", "managed_store": False, "role": role},
        tracer=fresh_tracer(),
        runner=agl.LitAgentRunner(tracer=fresh_tracer(), poll_interval=0.05, interval_jitter=0.0, heartbeat_interval=0),
        **components,
    )


def train(url: str, role: str = "both", train: int = 2, val: int = 1) -> None:
    """Runs the trainer: an algorithm in this process, two runners in processes of their own, or one of the roles."""
    trainer = trainer_at(
        url,
        role,
        algorithm=Baseline(polling_interval=0.05, max_queue_length=16, span_verbosity="none"),
        initial_resources={"p": PromptTemplate(template="{do}", engine="f-string")},
    )
    trainer.fit(answer, train_dataset=[{"do": "emit"}] * train, val_dataset=[{"do": "emit"}] * val)


def in_a_process(target: Any, *args: Any, deadline: float = DEADLINE) -> str | None:
    """Runs it in a fork of this process and says how it failed, if it did.

    The trainer sets up signals for the process that it is in, and tracers instrument libraries for all of it.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def guarded() -> None:
        os.setpgid(0, 0)  # so that what it starts ends with it
        try:
            target(*args)
            theirs.send(None)
        except BaseException:
            theirs.send(traceback.format_exc())

    process = context.Process(target=guarded)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(deadline) else f"no end after {deadline:g} s"
    except EOFError:
        return "it died"
    finally:
        ours.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
