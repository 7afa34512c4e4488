"""Spans recorded by our LLM proxy, read by the Python package's adapters; the agent is the real OpenAI SDK."""

from __future__ import annotations

import asyncio
import json
import unittest
import urllib.error
import urllib.request
from typing import Any

import agentlightning as agl
import openai
from agentlightning.adapter import LlmProxyTraceToTriplet, TraceToMessages, TracerTraceToTriplet
from agentlightning.emitter import find_final_reward
from agentlightning.store import LightningStoreClient
from agentlightning.types import AttemptedRollout, ProxyLLM, Rollout

from model import Server, prompt_of, reply_to, tokens
from programs import SECRET, Program, until
from test_runner import forget_tracer_provider, in_a_process, run
from test_spans import span


@agl.rollout
async def backwards(task: str, llm: agl.LLM) -> None:
    """An agent that calls its model once and rewards the right answer."""
    async with openai.AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": task}]
        reply = await client.chat.completions.create(model=llm.model, messages=messages, **llm.sampling_parameters)
    agl.emit_reward(1.0 if reply.choices[0].message.content == task[::-1] else 0.0)


def run_traced_by_agentops(url: str, count: int) -> None:
    """The default tracer instruments the SDK for all of its process, hence in one of its own."""
    forget_tracer_provider()
    asyncio.run(run(LightningStoreClient(url), backwards, count, agl.AgentOpsTracer()))


class Proxy(unittest.IsolatedAsyncioTestCase):
    """Each test has a store behind a token, a proxy before a scripted backend, and a client of the store."""

    async def asyncSetUp(self) -> None:
        self.backend = self.enterContext(Server())
        server = self.enterContext(Program("store", "--db", "memory:", env={"AGL_TOKEN": SECRET}))
        proxy = self.enterContext(Program("proxy", "--store", server.url, "--model", f"qwen={self.backend.url}", env={"AGL_TOKEN": SECRET}))
        self.proxy_url = proxy.url
        self.store = LightningStoreClient(server.url.replace("//", f"//agl:{SECRET}@"), retry_delays=(), health_retry_delays=())
        self.addAsyncCleanup(self.store.close)

    def resource(self) -> ProxyLLM:
        return ProxyLLM(endpoint=f"{self.proxy_url}/v1", model="qwen", sampling_parameters={"temperature": 1.0})

    def openai(self, r: AttemptedRollout | Rollout) -> openai.AsyncOpenAI:
        """The SDK as an agent uses it, at the address that the resource hands it."""
        assert isinstance(r, AttemptedRollout)
        llm = self.resource().with_attempted_rollout(r)
        client = openai.AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0, timeout=30)
        self.addAsyncCleanup(client.close)
        return client

    async def spans(self, r: Rollout, calls: int) -> list[agl.Span]:
        """The rollout's spans, when so many calls are recorded: the store gets a call's spans after the agent its reply."""
        got = await until(
            f"{calls} recorded calls",
            lambda: self.store.query_spans(r.rollout_id),
            lambda spans: sum(s.name == "raw_gen_ai_request" for s in spans) >= calls,
        )
        return list(got)

    async def reward(self, r: AttemptedRollout, value: float) -> None:
        n = await self.store.get_next_span_sequence_id(r.rollout_id, r.attempt.attempt_id)
        attributes: dict[str, Any] = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": value}
        await self.store.add_span(span(r, n, name="agentlightning.annotation", attributes=attributes, start_time=None, end_time=None))

    async def test_triplets_of_a_conversation(self) -> None:
        r = await self.store.start_rollout("task")
        client = self.openai(r)
        first = [{"role": "system", "content": "Be brief. \U0001f600"}, {"role": "user", "content": "what is \"1+1\"?\n\\ ä"}]
        reply = await client.chat.completions.create(model="qwen", messages=first, temperature=1.0)
        text = reply.choices[0].message.content
        self.assertEqual(text, reply_to(first))
        self.assertIsNone(reply.choices[0].logprobs, "the agent did not ask for log-probabilities")
        self.assertNotIn("token_ids", json.dumps(reply.model_dump()), "nor for token ids")
        await self.spans(r, 1)
        await self.reward(r, 0.25)

        second = [*first, {"role": "assistant", "content": text}, {"role": "user", "content": "and 2+2?"}]
        pieces: list[str] = []
        stream = await client.chat.completions.create(model="qwen", messages=second, stream=True)
        async for chunk in stream:
            self.assertNotIn("token_ids", json.dumps(chunk.model_dump()))
            self.assertTrue(chunk.choices, "usage was not asked for")
            pieces.append(chunk.choices[0].delta.content or "")
        self.assertEqual("".join(pieces), reply_to(second))
        spans = await self.spans(r, 2)
        await self.reward(r, 1.0)
        spans = list(await self.store.query_spans(r.rollout_id))

        want = [(tokens(prompt_of(m)), tokens(reply_to(m)), reward) for m, reward in ((first, 0.25), (second, 1.0))]
        proxied = LlmProxyTraceToTriplet().adapt(spans)
        self.assertEqual([(t.prompt["token_ids"], t.response["token_ids"], t.reward) for t in proxied], want)
        self.assertEqual([t.metadata["response_id"] for t in proxied], ["chatcmpl-1", "chatcmpl-2"])
        # The rewards here have no times, which is all that the tracer's adapter goes by.
        traced = TracerTraceToTriplet(llm_call_match="litellm_request").adapt([s for s in spans if s.name != "agentlightning.annotation"])
        self.assertEqual([(t.prompt["token_ids"], t.response["token_ids"]) for t in traced], [w[:2] for w in want])
        self.assertEqual([m["content"] for m in traced[1].prompt["raw_content"]], [m["content"] for m in second])
        conversations = TraceToMessages().adapt([s for s in spans if s.name == "litellm_request"])
        self.assertEqual([c["messages"][-1]["content"] for c in conversations], [reply_to(first), reply_to(second)])
        for path, q in self.backend.requests:
            self.assertEqual((path, q["return_token_ids"]), ("/v1/chat/completions", True))
        self.assertEqual((await self.store.get_rollout_by_id(r.rollout_id)).status, "running")

    async def test_what_the_agent_asks_for_reaches_it(self) -> None:
        r = await self.store.start_rollout("task")
        client = self.openai(r)
        ask: dict[str, Any] = {"model": "qwen", "messages": [{"role": "user", "content": "abc"}], "logprobs": True, "extra_body": {"return_token_ids": True, "chat_template_kwargs": {"x": 1.0}}}
        reply = await client.chat.completions.create(**ask)
        self.assertEqual([c.logprob for c in reply.choices[0].logprobs.content], [-0.5] * 3)
        self.assertEqual(reply.choices[0].token_ids, tokens("cba"))
        stream = await client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        self.assertEqual(chunks[0].prompt_token_ids, tokens("<user>abc<assistant>"))
        self.assertEqual([c.choices[0].token_ids for c in chunks[1:-1]], [[ord(c)] for c in "cba"])
        self.assertEqual(chunks[-1].usage.completion_tokens, 3)
        self.assertEqual([q["chat_template_kwargs"] for _, q in self.backend.requests], [{"x": 1.0}] * 2)
        triplets = LlmProxyTraceToTriplet().adapt(await self.spans(r, 2))
        self.assertEqual([t.response["token_ids"] for t in triplets], [tokens("cba")] * 2)

    async def test_a_backends_error_reaches_the_sdk(self) -> None:
        r = await self.store.start_rollout("task")
        client = self.openai(r)
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as caught:
                await client.chat.completions.create(model="qwen", messages=[{"role": "user", "content": "fail"}], stream=stream)
            self.assertIn("too long", str(caught.exception))
        with self.assertRaises(openai.NotFoundError):
            await client.chat.completions.create(model="unknown", messages=[{"role": "user", "content": "x"}])
        await client.chat.completions.create(model="qwen", messages=[{"role": "user", "content": "fine"}])
        # Calls that fail are recorded too.
        triplets = LlmProxyTraceToTriplet().adapt(await self.spans(r, 4))
        self.assertEqual([t.response["token_ids"] for t in triplets], [tokens("enif")])

    async def test_an_agent_of_the_python_runner(self) -> None:
        """Runner, agent, SDK, proxy, store, adapter: all of it."""

        await self.store.add_resources({"main": self.resource()})
        made = [await self.store.enqueue_rollout(task, mode="train") for task in ("stop", "level")]
        await run(self.store, backwards, len(made))
        for r in made:
            spans = await self.spans(r, 1)
            [triplet] = LlmProxyTraceToTriplet().adapt(spans)
            self.assertEqual(triplet.response["token_ids"], tokens(r.input[::-1]))
            self.assertEqual(agl.find_final_reward(spans), 1.0)
            self.assertEqual((await self.store.get_rollout_by_id(r.rollout_id)).status, "succeeded")
        self.assertEqual([q["temperature"] for _, q in self.backend.requests], [1.0, 1.0])

    async def test_an_agent_traced_by_agentops(self) -> None:
        """The package's default tracer sends what it instrumented; its adapter makes the same triplets of it."""
        await self.store.add_resources({"main": self.resource()})
        made = [await self.store.enqueue_rollout(task) for task in ("stop", "level")]
        failure = await asyncio.to_thread(in_a_process, run_traced_by_agentops, self.store.server_address_root, len(made))
        self.assertIsNone(failure, "the runner's process")
        for r in made:
            self.assertEqual((await self.store.get_rollout_by_id(r.rollout_id)).status, "succeeded")
            spans = await self.spans(r, 1)
            self.assertIn("openai.chat.completion", [s.name for s in spans])
            # As the tracer has it: the call by name, the reward by time. The agent did not ask for token ids.
            [traced] = TracerTraceToTriplet(agent_match=None).adapt([s for s in spans if s.name not in RECORDED])
            self.assertEqual((traced.reward, traced.response["raw_content"][0]["content"]), (1.0, r.input[::-1]))
            [recorded] = LlmProxyTraceToTriplet().adapt(spans)
            self.assertEqual(recorded.response["token_ids"], tokens(r.input[::-1]))


RECORDED = ("Received Proxy Server Request", "litellm_request", "raw_gen_ai_request")
"""The spans that the proxy records of a call."""


class ArealSessions(unittest.IsolatedAsyncioTestCase):
    """The calls of the tutorial of AReaL's online mode, in its order, at our proxy; then what its FAQ and table of errors promise."""

    async def test_the_tutorial(self) -> None:
        backend = self.enterContext(Server())
        server = self.enterContext(Program("store", "--db", "memory:", env={"AGL_TOKEN": SECRET}))
        gateway = self.enterContext(
            Program("proxy", "--store", server.url, "--model", f"default={backend.url}", "--require-keys", "--session-idle", "1h", env={"AGL_TOKEN": SECRET})
        ).url
        store = LightningStoreClient(server.url.replace("//", f"//agl:{SECRET}@"), retry_delays=(), health_retry_delays=())
        self.addAsyncCleanup(store.close)

        def post(path: str, key: str | None, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            headers = {"Content-Type": "application/json"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            request = urllib.request.Request(gateway + path, json.dumps(body).encode(), headers)
            try:
                with urllib.request.urlopen(request, timeout=30) as reply:
                    return reply.status, json.load(reply)
            except urllib.error.HTTPError as err:
                return err.code, json.load(err)

        # Step 3: start a session.
        status, session = await asyncio.to_thread(post, "/rl/start_session", SECRET, {"task_id": "demo-task-0"})
        self.assertEqual(status, 200, session)
        self.assertRegex(session["api_key"], r"^sk-sess-")
        key = session["api_key"]

        # Step 4: interact with the model, by HTTP and by the SDK, whose base URL is the gateway's.
        question: list[Any] = [{"role": "user", "content": "What is 12 * 15 + 3?"}]
        status, first = await asyncio.to_thread(post, "/chat/completions", key, {"model": "default", "messages": question, "temperature": 0.7})
        self.assertEqual((status, first["choices"][0]["message"]["content"]), (200, reply_to(question)), first)
        async with openai.AsyncOpenAI(base_url=gateway, api_key=key, max_retries=0) as client:
            second = await client.chat.completions.create(model="default", messages=question)
        self.assertEqual(second.choices[0].message.content, reply_to(question))

        # Step 5: a reward for an intermediate step, by its completion's id, one for the session, and its end.
        for body in ({"reward": 0.5, "interaction_id": first["id"]}, {"reward": 1.0}):
            status, said = await asyncio.to_thread(post, "/rl/set_reward", key, body)
            self.assertEqual(status, 200, said)
        status, said = await asyncio.to_thread(post, "/rl/end_session", key, {})
        self.assertEqual((status, said["interaction_count"]), (200, 2), said)

        (rollout,) = await store.query_rollouts()
        self.assertEqual(rollout.status, "succeeded")
        spans = list(await store.query_spans(rollout.rollout_id))
        triplets = LlmProxyTraceToTriplet().adapt(spans)
        self.assertEqual([t.response["token_ids"] for t in triplets], [tokens(reply_to(question))] * 2)
        self.assertEqual(find_final_reward(spans), 1.0)

        # A fixed key: starting a session with it ends the one before.
        fixed = "a-fixed-key-of-an-application"
        ids = []
        for turn in range(2):
            status, session = await asyncio.to_thread(post, "/rl/start_session", SECRET, {"task_id": "app", "api_key": fixed})
            self.assertEqual((status, session["api_key"]), (200, fixed), session)
            ids.append(session["session_id"])
            status, said = await asyncio.to_thread(post, "/chat/completions", fixed, {"model": "default", "messages": question})
            self.assertEqual(status, 200, said)
        self.assertEqual(len(set(ids)), 2)
        statuses = {r.rollout_id: r.status for r in await store.query_rollouts()}
        self.assertEqual((statuses[ids[0]], len(statuses)), ("succeeded", 3))
        self.assertIn(statuses[ids[1]], ("preparing", "running"))

        # Its table of errors.
        for path, with_key, want in [
            ("/rl/start_session", None, 401),
            ("/rl/start_session", "wrong", 401),
            ("/chat/completions", "wrong", 401),
            ("/rl/set_reward", None, 401),
            ("/rl/end_session", key, 410),  # it has ended
        ]:
            status, said = await asyncio.to_thread(post, path, with_key, {"task_id": "x", "model": "default", "messages": question, "reward": 1})
            self.assertEqual(status, want, f"{path} with {with_key}: {said}")
