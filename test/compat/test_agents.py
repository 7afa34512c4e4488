"""The ways to write an agent for the Python runner, its hooks and emitters: what arrives is the same in both stores."""

from __future__ import annotations

import asyncio
from typing import Any

import agentlightning as agl
from agentlightning.emitter import find_final_reward
from agentlightning.types import LLM, NamedResources, PromptTemplate, ProxyLLM, Rollout

from differential import DifferentialTest, Side
from test_runner import RunnerMask, answer, run

RESOURCES: NamedResources = {
    "prompt": PromptTemplate(template="solve {do}!", engine="f-string"),
    "model": ProxyLLM(endpoint="http://proxy/v1", model="m", sampling_parameters={"temperature": 1.0}),
}


@agl.prompt_rollout
async def of_a_prompt(task: dict[str, Any], prompt_template: PromptTemplate) -> float:
    """An asynchronous agent of a prompt alone."""
    await asyncio.sleep(0)
    agl.emit_message(prompt_template.format(**task))
    try:
        raise LookupError("no answer")
    except LookupError as err:
        agl.emit_exception(err)
    return 0.5


@agl.llm_rollout(strip_proxy=False)
def of_a_proxy(task: dict[str, Any], llm: LLM) -> float:
    """An agent that is handed the proxy as it is."""
    agl.emit_object({"kind": type(llm).__name__, "model": llm.model})
    return 1.0


class OfModes(agl.LitAgent[Any]):
    """An agent that validates otherwise than it trains."""

    def training_rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> float:

        @agl.operation
        def double(n: int) -> int:
            return 2 * n

        agl.emit_annotation({"resources": sorted(resources), "doubled": double(21)})
        return 1.0

    def validation_rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> None:
        agl.emit_reward({"accuracy": 0.5, "style": 1.0}, primary_key="accuracy")


class Watcher(agl.Hook):
    """A hook that speaks wherever it can, and fails in the end."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_rollout_start(self, *, rollout: Rollout, **_: Any) -> None:
        self.seen.append(("rollout start", rollout.mode, rollout.status))

    async def on_trace_start(self, **_: Any) -> None:
        self.seen.append("trace start")
        agl.emit_annotation({"hook": "start"})

    async def on_trace_end(self, **_: Any) -> None:
        self.seen.append("trace end")
        agl.emit_reward(0.125)

    async def on_rollout_end(self, *, spans: list[Any], **_: Any) -> None:
        self.seen.append(("rollout end", [s.name for s in spans]))
        raise RuntimeError("hooks may fail")


class Agents(DifferentialTest):
    async def runs(self, agent: agl.LitAgent[Any], *modes: Any, hooks: bool = False) -> None:
        """Compares what an agent's rollouts leave behind, one rollout of each mode."""

        async def script(s: Side) -> None:
            watcher = Watcher()
            await s.store.add_resources(RESOURCES)
            made = [await s.store.enqueue_rollout({"do": "emit"}, mode=mode) for mode in modes]
            await run(s.client, agent, len(made), hooks=[watcher] if hooks else [])
            for mode, r in zip(modes, made, strict=True):
                await s.see(f"rollout {mode}", s.store.get_rollout_by_id(r.rollout_id))
                spans = await s.see(f"spans of {mode}", s.store.query_spans(r.rollout_id))
                await s.see(f"reward of {mode}", find_final_reward(spans))
            await s.see("what the hooks saw", watcher.seen)

        await self.compare(script, RunnerMask)

    async def test_of_a_prompt(self) -> None:
        await self.runs(of_a_prompt, "train")

    async def test_of_a_proxy(self) -> None:
        await self.runs(of_a_proxy, "val")

    async def test_of_modes(self) -> None:
        await self.runs(OfModes(), "train", "val")

    async def test_with_hooks(self) -> None:
        await self.runs(answer, "train", hooks=True)
