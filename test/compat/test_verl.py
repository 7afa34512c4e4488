"""A training step of VERL over our store: its daemon, the package's LLMProxy, two runners, and the batches that come out."""

from __future__ import annotations

import asyncio
import os
import tempfile
import unittest
from typing import Any
from unittest import mock

import agentlightning as agl
import openai
from agentlightning.adapter import LlmProxyTraceToTriplet
from agentlightning.llm_proxy import LLMProxy
from agentlightning.store import LightningStoreClient
from agentlightning.types import ProxyLLM
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from model import Server, prompt_of, reply_to, tokens
from programs import DEADLINE, Program, forked, free_port
from standins import load_daemon
from test_runner import forget_tracer_provider, in_a_process, run_forever

MODEL, KEY, PAD = "qwen", "sk-of-the-tests", 0
PROMPT, RESPONSE = 42, 30
"""The longest prompt and response of a batch, in tokens."""

SAMPLES: list[dict[str, Any]] = [
    # Two turns of one conversation: one trajectory, whose second prompt is too long for a transition.
    {"turns": ["ab", "cdefg"], "reward": 1.0},
    # A new conversation in between: two trajectories. The first prompt and its response are too long.
    {"turns": ["0123456789abcdef" * 2 + "x", None, "y"], "reward": 0.25},
]
EACH = 2
"""Rollouts for each sample."""


def calls(turns: list[str | None]) -> list[list[dict[str, str]]]:
    """The messages of each model call of a rollout."""
    out: list[list[dict[str, str]]] = []
    messages: list[dict[str, str]] = []
    for turn in turns:
        if turn is None:
            messages = []
            continue
        messages = [*messages, {"role": "user", "content": turn}]
        out.append(messages)
        messages = [*messages, {"role": "assistant", "content": reply_to(messages)}]
    return out


@agl.llm_rollout
async def converse(task: dict[str, Any], llm: agl.LLM) -> float:
    """An agent that says its lines and is rewarded by its task."""
    async with openai.AsyncOpenAI(base_url=f"{llm.endpoint}/v1", api_key=KEY, max_retries=0) as client:
        for messages in calls(task["turns"]):
            reply = await client.chat.completions.create(model=llm.model, messages=messages, **llm.sampling_parameters)  # type: ignore[arg-type]
            assert reply.choices[0].message.content == reply_to(messages)
    return float(task["reward"])


def step(store_url: str, model_address: str, folder: str) -> None:
    """One step, as VERL's trainer makes it; raises where it does not come out as expected."""
    forget_tracer_provider()  # that of another test exports to a store that is gone, and LiteLLM would wait for it
    tempfile.tempdir = folder  # LLMProxy leaves its configuration there
    with open(os.path.join(folder, "output"), "wb") as output:
        os.dup2(output.fileno(), 1)  # LiteLLM's banners, and what the daemon counts
    store = LightningStoreClient(store_url)
    # Its own probe asks /health, which wants the key that it does not send.
    arguments = PythonServerLauncherArgs(port=free_port(), host="127.0.0.1", access_host="127.0.0.1", launch_mode="mp", healthcheck_url="/health/liveliness", startup_timeout=4 * DEADLINE)
    proxy = LLMProxy(model_list=[], store=store, launcher_args=arguments)
    daemon = load_daemon().AgentModeDaemon(
        None, EACH, {"model": MODEL, "temperature": 0.5}, None, mini_batch_size=4, pad_token_id=PAD, mode="v1", llm_proxy=proxy, store=store, adapter=LlmProxyTraceToTriplet()
    )
    while daemon._internal_loop is None or not daemon._internal_loop.is_running():
        pass  # it does not wait for its own thread
    data = {key: [s[key] for s in SAMPLES] for key in SAMPLES[0]}
    daemon.set_up_data_and_server(data, [model_address], is_train=True)
    daemon.run_until_all_finished()
    check = Check(daemon)
    for level, rows in (("transition", check.transitions()), ("trajectory", check.trajectories())):
        daemon.trace_aggregator = {"level": level}
        check.batch(rows, *daemon.get_train_data_batch(PROMPT, RESPONSE, "cpu", 1))
    asyncio.run_coroutine_threadsafe(proxy.stop(), daemon._internal_loop).result()


Row = tuple[list[int], list[int], list[int], float]
"""Prompt, response, which of the response are the model's own, and the reward."""


class Check(unittest.TestCase):
    """What a batch must be, from the samples alone."""

    def __init__(self, daemon: Any):
        super().__init__()
        self.daemon = daemon

    def turns(self) -> list[tuple[str, list[tuple[list[int], list[int]]], float]]:
        """The prompts and responses of each rollout, in the order in which the daemon has them."""
        out = []
        for rollout_id in self.daemon._completed_rollouts_v0:
            sample = self.daemon._task_id_to_original_sample[rollout_id]
            out.append((rollout_id, [(tokens(prompt_of(m)), tokens(reply_to(m))) for m in calls(sample["turns"])], sample["reward"]))
        return out

    def transitions(self) -> list[tuple[str, Row]]:
        return [(r, (p, a, [1] * len(a), reward)) for r, turns, reward in self.turns() for p, a in turns]

    def trajectories(self) -> list[tuple[str, Row]]:
        rows: list[tuple[str, Row]] = []
        for rollout_id, turns, reward in self.turns():
            so_far: list[int] = []
            for prompt, answer in turns:
                if so_far and prompt[: len(so_far)] == so_far:
                    first, response, own, _ = rows[-1][1]
                    between = prompt[len(so_far) :]
                    rows[-1] = (rollout_id, (first, response + between + answer, own + [0] * len(between) + [1] * len(answer), reward))
                else:
                    rows.append((rollout_id, (prompt, answer, [1] * len(answer), reward)))
                so_far = prompt + answer
        return rows

    def batch(self, rows: list[tuple[str, Row]], proto: Any, metrics: dict[str, Any]) -> None:
        """Compares a batch, padded on the outside and cut at the end, with its rows."""
        got = {name: t.tolist() for name, t in proto.batch.items()}
        self.assertEqual(proto.non_tensor_batch["rollout_id_list"].tolist(), [r for r, _ in rows])
        for i, (_, (prompt, response, own, reward)) in enumerate(rows):
            p, a, mine = prompt[:PROMPT], response[:RESPONSE], own[:RESPONSE]
            left, right = PROMPT - len(p), RESPONSE - len(a)
            want: dict[str, Any] = {
                "prompts": [PAD] * left + p,
                "responses": a + [PAD] * right,
                "input_ids": [PAD] * left + p + a + [PAD] * right,
                "attention_mask": [0] * left + [1] * (len(p) + len(a)) + [0] * right,
                "is_drop_mask": len(prompt) > PROMPT,
                # The whole reward at the last token.
                "token_level_scores": [0.0] * (len(a) - 1) + [reward] + [0.0] * right,
            }
            if "response_mask" in got:
                want["response_mask"] = mine + [0] * right
            for name, value in want.items():
                self.assertEqual(got[name][i], value, f"{name} of row {i}")
        rewards = [s["reward"] for s in SAMPLES]
        for name, value in {
            "training/reward": sum(rewards) / len(rewards),
            "training/n_rollouts": len(SAMPLES) * EACH,
            "training/n_rollouts_w_trace": len(SAMPLES) * EACH,
            "training/n_rollouts_w_reward": len(SAMPLES) * EACH,
            "training/n_triplets": len(rows),
            "training/n_truncated_triplets": sum(len(r[1]) > RESPONSE for _, r in rows),
        }.items():
            self.assertEqual(metrics[name], value, name)


class Verl(unittest.TestCase):
    def test_a_training_step(self) -> None:
        model = self.enterContext(Server())
        server = self.enterContext(Program("store", "--db", "memory:"))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        # Which LiteLLM's proxy must have, and agents send.
        self.enterContext(mock.patch.dict(os.environ, {"LITELLM_MASTER_KEY": KEY}))
        with forked(run_forever, server.url, converse), forked(run_forever, server.url, converse):
            failure = in_a_process(step, server.url, f"127.0.0.1:{model.server_port}", folder, deadline=6 * DEADLINE)
        self.assertIsNone(failure, "the daemon's process")
        for path, q in model.requests:
            self.assertEqual((path, q["temperature"], q["return_token_ids"]), ("/v1/chat/completions", 0.5, True))
        asyncio.run(self.check(server.url))

    async def check(self, url: str) -> None:
        """What the daemon and the LLMProxy have left in the store."""
        store = LightningStoreClient(url)
        try:
            [update] = await store.query_resources()
            llm = update.resources["main_llm"]
            self.assertIsInstance(llm, ProxyLLM)
            rollouts = await store.query_rollouts()
            self.assertEqual(len(rollouts), len(SAMPLES) * EACH)
            for r in rollouts:
                self.assertEqual((r.status, r.mode, r.resources_id, r.metadata["is_train"]), ("succeeded", "train", update.resources_id, True))  # type: ignore[index]
                spans = await store.query_spans(r.rollout_id, "latest")
                recorded = [s for s in spans if s.name == "raw_gen_ai_request"]
                self.assertEqual(len(recorded), len(calls(r.input["turns"])))
                self.assertEqual({s.resource.attributes["agentlightning.rollout_id"] for s in recorded}, {r.rollout_id})
        finally:
            await store.close()
