"""The Python package's APO class over our store and proxy, with a scripted model that is as good as its prompt."""

from __future__ import annotations

import asyncio
import re
import types
import unittest
from typing import Any
from unittest import mock

import agentlightning as agl
import openai
from agentlightning.adapter import TraceToMessages
from agentlightning.algorithm import APO
from agentlightning.algorithm.apo import apo
from agentlightning.store import LightningStoreClient
from agentlightning.types import PromptTemplate, ProxyLLM, Rollout

from model import Server
from programs import DEADLINE, Program
from test_runner import in_a_process, trainer_at

SEED = "Answer: {question}"
ADVICE = ("briefly", "politely", "in French")
"""What a prompt must hold to be the best one; each is worth a third."""
BEST = " ".join((SEED, *ADVICE))


def reply(q: dict[str, Any]) -> str:
    """The model of the agent, and those of the algorithm by their names."""
    text = "\n".join(m["content"] if isinstance(m["content"], str) else "".join(p["text"] for p in m["content"]) for m in q["messages"])
    if q["model"] == "critic":
        return "Critique: it says too little of how to answer."
    if q["model"] == "editor":
        [prompt] = set(re.findall(rf"{re.escape(SEED)}[ a-zA-Z]*", text))
        missing = next((a for a in ADVICE if a not in prompt), "")
        return f"{prompt.rstrip()} {missing}".rstrip()
    return str(sum(a in text for a in ADVICE))


@agl.prompt_rollout
async def answer(task: dict[str, Any], prompt_template: PromptTemplate, rollout: Rollout) -> float:
    """An agent whose model is at our proxy, which records its calls."""
    llm = ProxyLLM(endpoint=task["proxy"], model="qwen").with_attempted_rollout(rollout)  # type: ignore[arg-type]
    async with openai.AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": prompt_template.format(question=task["question"])}]
        said = await client.chat.completions.create(model=llm.model, messages=messages)
    return int(said.choices[0].message.content or 0) / len(ADVICE)


def optimize(store_url: str, proxy_url: str) -> None:
    async def briefly(seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.05))

    client = openai.AsyncOpenAI(base_url=f"{proxy_url}/v1", api_key="none", max_retries=0)
    algorithm: APO[Any] = APO(
        client, gradient_model="critic", apply_edit_model="editor", gradient_batch_size=2, val_batch_size=2, beam_width=1, branch_factor=1, beam_rounds=3
    )
    trainer = trainer_at(store_url, "both", algorithm=algorithm, adapter=TraceToMessages(), initial_resources={"main": PromptTemplate(template=SEED, engine="f-string")})
    tasks = [{"question": f"question {n}?", "proxy": f"{proxy_url}/v1"} for n in range(4)]
    # It waits two seconds between two looks at the store.
    with mock.patch.object(apo, "asyncio", types.SimpleNamespace(sleep=briefly)):
        trainer.fit(answer, train_dataset=tasks[:2], val_dataset=tasks[2:])
    if (best := algorithm.get_best_prompt().template) != BEST:
        raise AssertionError(f"the best prompt is {best!r}, want {BEST!r}")


class PromptOptimization(unittest.TestCase):
    def test_it_finds_the_best_prompt(self) -> None:
        model = self.enterContext(Server(reply))
        store = self.enterContext(Program("store", "--db", "memory:"))
        names = [arg for name in ("qwen", "critic", "editor") for arg in ("--model", f"{name}={model.url}")]
        proxy = self.enterContext(Program("proxy", "--store", store.url, *names))
        self.assertIsNone(in_a_process(optimize, store.url, proxy.url, deadline=8 * DEADLINE), "the trainer's process")
        # What the critic was shown are the calls that the proxy recorded.
        shown = [str(q["messages"]) for _, q in model.requests if q["model"] == "critic"]
        self.assertEqual(len(shown), len(ADVICE))
        for text in shown:
            self.assertRegex(text, "Answer: question [01]\\?")
        asyncio.run(self.check(store.url))

    async def check(self, url: str) -> None:
        store = LightningStoreClient(url)
        try:
            versions = [await store.get_resources_by_id(f"v{n}") for n in range(len(ADVICE) + 1)]
            prompts = [v.resources["main"].template for v in versions if v]  # type: ignore[union-attr]
            self.assertEqual(prompts, [" ".join((SEED, *ADVICE[:n])) for n in range(len(ADVICE) + 1)])
            rollouts = await store.query_rollouts()
            self.assertEqual({r.status for r in rollouts}, {"succeeded"})
            self.assertEqual({r.resources_id for r in rollouts}, {v.resources_id for v in versions if v})
            for r in rollouts:
                spans = [s for s in await store.query_spans(r.rollout_id) if s.name == "litellm_request"]
                [conversation] = TraceToMessages().adapt(spans)
                self.assertEqual([m["role"] for m in conversation["messages"]], ["user", "assistant"])
        finally:
            await store.close()
