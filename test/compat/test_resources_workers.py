"""Resources, workers and statistics: every operation of the Python client, on both servers."""

from __future__ import annotations

import asyncio
import pickle
import unittest

import aiohttp
from agentlightning.store import LightningStoreClient
from agentlightning.types import LLM, PromptTemplate, ProxyLLM

from differential import ANY, DifferentialTest, Ours, Side
from programs import CANARY, SECRET, Program
from test_spans import span

LLMS = {
    "plain": LLM(endpoint="http://h/v1", model="m"),
    "full": LLM(endpoint="http://h/v1", model="org/m:1", api_key="key", sampling_parameters={"temperature": 1.0, "top_k": 3, "stop": ["a"], "extra_body": {"n": None}}),
    "proxy": ProxyLLM(endpoint="http://h", model="m", sampling_parameters={"temperature": 0}),
}


class Resources(DifferentialTest):
    async def test_resources(self) -> None:
        async def script(s: Side) -> None:
            await s.see("no latest", s.store.get_latest_resources())
            await s.see("unknown", s.store.get_resources_by_id("rs-none"))
            await s.see("nothing stored", s.store.query_resources())
            first = await s.see("llms", s.store.add_resources(LLMS))
            prompts = {name: PromptTemplate(template="hi {name} ä\U0001f600", engine=name) for name in ("jinja", "f-string", "poml")}
            second = await s.see("prompts, in their order", s.store.add_resources({"z": prompts["poml"], "a": prompts["jinja"], "ü b": prompts["f-string"]}))
            await s.see("the latest", s.store.get_latest_resources())
            await s.see("the first", s.store.get_resources_by_id(first.resources_id))
            await s.see("updated", s.store.update_resources(first.resources_id, {"p": prompts["jinja"]}))
            await s.see("which makes it the latest", s.store.get_latest_resources())
            await s.see("updated again", s.store.update_resources(first.resources_id, {}))
            await s.see("made by an update", s.store.update_resources("näme with space", {"p": prompts["poml"]}))
            await s.see("by that name", s.store.get_resources_by_id("näme with space"))
            await s.see("empty", s.store.add_resources({}))
            await s.see("all", s.store.query_resources())
            await s.see("by id", s.store.query_resources(resources_id=second.resources_id))
            await s.see("by unknown id", s.store.query_resources(resources_id="rs-none"))
            await s.see("by a part of the id", s.store.query_resources(resources_id_contains="with"))
            await s.see("a page", s.store.query_resources(limit=2, offset=1))
            await s.see("by version, descending", s.store.query_resources(sort_by="version", sort_order="desc"))
            await s.see("by update", s.store.query_resources(sort_by="update_time", sort_order="desc", limit=2))
            await s.see("unknown field", s.store.query_resources(sort_by="colour"))
            await s.see("limit 0", s.store.query_resources(limit=0))

        await self.compare(script)


class Workers(DifferentialTest):
    async def test_workers(self) -> None:
        async def script(s: Side) -> None:
            await s.see("unknown", s.store.get_worker_by_id("w"))
            await s.see("none", s.store.query_workers())
            await s.see("a first heartbeat", s.store.update_worker("w"))
            stats = {"cpu": 1.0, "n": 3, "gpus": [{"id": 0}], "host": "grüße"}
            await s.see("with figures", s.store.update_worker("w", heartbeat_stats=stats))
            await s.see("without, the old ones stay", s.store.update_worker("w"))
            await s.see("empty ones replace them", s.store.update_worker("w", heartbeat_stats={}))
            await s.see("null", s.store.update_worker("w", heartbeat_stats=None))
            await s.see("get", s.store.get_worker_by_id("w"))
            for i in range(3):
                await s.store.enqueue_rollout(i)
            first = await s.store.dequeue_rollout(worker_id="Worker-1")
            await s.store.dequeue_rollout(worker_id="Worker-2")
            await s.see("busy", s.store.get_worker_by_id("Worker-1"))
            await s.store.add_span(span(first, 1))
            await s.store.update_attempt(first.rollout_id, "latest", status="failed")
            await s.see("idle again", s.store.get_worker_by_id("Worker-1"))
            await s.store.dequeue_many_rollouts(limit=5, worker_id="Worker-1")
            await s.see("busy with the next", s.store.get_worker_by_id("Worker-1"))
            await s.see("heartbeat while busy", s.store.update_worker("Worker-1", heartbeat_stats={"k": 1}))
            await s.see("an id to escape", s.store.update_worker("a b%ü?#"))
            query = s.store.query_workers
            await s.see("all", query())
            await s.see("busy ones", query(status_in=["busy"]))
            await s.see("of no status", query(status_in=[]))
            await s.see("part of a name", query(worker_id_contains="orker"))
            await s.see("and", query(status_in=["busy"], worker_id_contains="2"))
            await s.see("or", query(status_in=["unknown"], worker_id_contains="2", filter_logic="or"))
            await s.see("sorted", query(sort_by="worker_id", sort_order="desc"))
            await s.see("unknown field", query(sort_by="colour"))
            await s.see("unknown status", query(status_in=["asleep"]))

        await self.compare(script)


class Statistics(DifferentialTest):
    async def test_statistics(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1, worker_id="w")
            await s.store.enqueue_rollout(2)
            await s.store.add_many_spans([span(r, 1), span(r, 2), span(r, 2)])
            await s.store.add_resources(LLMS)
            stats = await s.store.statistics()
            await s.see("figures", dict(sorted(stats.items())), FIGURES)
            await s.see("kinds", {k: type(v).__name__ for k, v in sorted(stats.items())})

        await self.compare(script)


OWN = "the name is the store's own, bytes are counted in another way"
FIGURES = Ours(OWN, {k: (ANY, ANY) for k in ("name", "uptime", "total_span_bytes", "eviction_threshold_bytes", "safe_threshold_bytes", "memory_capacity_bytes")})


class Client(unittest.IsolatedAsyncioTestCase):
    """What the Python client does beside the calls themselves."""

    async def test_a_token_in_the_url(self) -> None:
        with Program("store", "--db", "memory:", env={"AGL_TOKEN": "s:cret/%@" + CANARY}) as store:
            for url, status in (
                (store.url, 401),
                (store.url.replace("//", "//agl:wrong@"), 401),
                (store.url.replace("//", f"//agl:s%3Acret%2F%25%40{CANARY}@"), None),
            ):
                client = LightningStoreClient(url, retry_delays=(), health_retry_delays=())
                try:
                    r = await client.start_rollout(1)
                    self.assertIsNone(status, "started without the token")
                    self.assertIsNotNone(await client.add_span(span(r, 1)))
                except aiohttp.ClientResponseError as err:
                    self.assertEqual(err.status, status)
                finally:
                    await client.close()

    async def test_a_key_in_the_url(self) -> None:
        """Keys with scopes, as the user's password of the URL: what they allow works, the rest is 403, and a revoked one is 401."""
        with Program("store", "--db", "memory:", env={"AGL_TOKEN": SECRET}) as store:
            async with aiohttp.ClientSession(headers={"Authorization": "Bearer " + SECRET}) as root:
                keys = {}
                for scope in ("train", "read"):
                    async with root.post(store.url + "/v1/agl/keys", json={"name": scope, "scopes": [scope]}) as made:
                        self.assertEqual(made.status, 201, await made.text())
                        keys[scope] = await made.json()
                url = {scope: store.url.replace("//", f"//agl:{made['key']}@") for scope, made in keys.items()}
                trains = LightningStoreClient(url["train"], retry_delays=(), health_retry_delays=())
                reads = LightningStoreClient(url["read"], retry_delays=(), health_retry_delays=())
                try:
                    r = await trains.enqueue_rollout({"n": 1})
                    self.assertEqual([x.rollout_id for x in await reads.query_rollouts()], [r.rollout_id])
                    with self.assertRaises(aiohttp.ClientResponseError) as refused:
                        await reads.enqueue_rollout({"n": 2})
                    self.assertEqual(refused.exception.status, 403)
                    async with root.delete(store.url + f"/v1/agl/keys/{keys['train']['id']}") as revoked:
                        self.assertLess(revoked.status, 300, await revoked.text())
                    with self.assertRaises(aiohttp.ClientResponseError) as refused:
                        await trains.enqueue_rollout({"n": 3})
                    self.assertEqual(refused.exception.status, 401)
                finally:
                    await trains.close()
                    await reads.close()

    async def test_a_pickled_client_and_threads(self) -> None:
        """Runner processes get the client pickled; the exporter's thread uses it from an event loop of its own."""
        with Program("store", "--db", "memory:") as store:
            client = LightningStoreClient(store.url, retry_delays=(), health_retry_delays=())
            copy = pickle.loads(pickle.dumps(client))
            r = await client.enqueue_rollout({"n": 1})

            async def claim() -> str:
                try:
                    return (await copy.dequeue_rollout()).rollout_id
                finally:
                    await copy.close()

            self.assertEqual(await asyncio.to_thread(asyncio.run, claim()), r.rollout_id)
            await client.close()

    async def test_a_server_that_comes_back(self) -> None:
        """The client's retries find a server that was started meanwhile on the same port."""
        with Program("store", "--db", "memory:") as store:
            url = store.url
        client = LightningStoreClient(url, retry_delays=(0.01,) * 3, health_retry_delays=(0.05,) * 200)
        answer = asyncio.ensure_future(client.enqueue_rollout(1))
        with Program("store", "--db", "memory:", port=int(url.rsplit(":", 1)[1])):
            self.assertEqual((await answer).status, "queuing")
        await client.close()
