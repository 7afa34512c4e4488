"""Model calls through the proxy of both servers, and what is recorded of them."""

import http.client
import json
import threading
import time

from same import settled
from servers import KEY, MODEL


def run(server, engine) -> list:
    client = server.client()
    out = []

    def call(rollout: str, mode: str, body, path="chat/completions", attempt="0"):
        content = body if isinstance(body, str) else json.dumps(body)
        response = client.post(f"/proxy/rollout/{rollout}/attempt/{attempt}/mode/{mode}/openai/v1/{path}", content=content)
        headers = {k: response.headers.get(k) for k in ("content-type", "retry-after", "x-agl-paused")}
        out.append((f"call {rollout} {mode} {path} {content}", (response.status_code, headers, settled(response.json()))))

    def messages(text: str, **more) -> dict:
        return {"messages": [{"role": "user", "content": text}], **more}

    client.post("/api/rollouts", json=[{"input": {}, "rollout_id": "r"}, {"input": {}, "rollout_id": "s", "is_train": False}])
    call("r", "train", messages("hi"))
    client.post("/api/models", json=[{"model": MODEL, "endpoint": engine.url + "/", "version": 4}, {"model": "x", "endpoint": "http://127.0.0.1:1"}])
    for mode, path, body in (("test", "chat/completions", {}), ("train", "responses", {}), ("train", "", {}), ("train", "chat/completions", "{"),
                             ("train", "chat/completions", "[]"), ("train", "chat/completions", "null"), ("train", "chat/completions", messages("a", stream=True))):
        call("r", mode, body, path)
    call("nope", "train", {})
    call("r", "train", messages("one", temperature=0.1, model="gpt", logprobs=False, tools=[]))
    call("r", "val", messages("two", temperature=0.1))
    call("s", "train", messages("three", stream=False))
    call("r", "train", {"prompt": "four"}, "completions")
    call("r", "train", messages("one"))
    call("r", "train", messages("fail"))
    call("r", "train", messages("text"))
    call("r", "train", messages("flaky"))
    call("r", "train", messages("other"), attempt="9")
    client.post("/proxy/pause", json={"retry_after_seconds": 7, "reason": "update"})
    call("r", "train", messages("paused"))
    client.post("/proxy/resume")
    client.patch("/api/rollouts/r", json={"status": {"state": "failed"}})
    call("r", "train", messages("after the end"))
    parallel(client, out)
    leave(server, client, engine, out)
    for query in ("", "?format=triplet", "?format=triplet&include_routed_experts=false", "?event_type=model_request"):
        for rollout in ("r", "s"):
            events = client.get(f"/api/rollouts/{rollout}/events{query}").json()
            for e in events:
                e["timestamp"] = "TIME"
                e["data"].pop("latency_ms", None)
                e["data"].get("server", {}).pop("endpoint", None)  # each server has an engine of its own
            out.append((f"events {rollout} {query}", events))
    out.append(("attempts", client.get("/api/rollouts/r").json()["attempts"]))
    out.append(("requests of the engine", [r for r in engine.requests if "p-" not in json.dumps(r) and "-leave" not in json.dumps(r)]))
    client.delete("/api/models")
    call("r", "train", messages("none"))
    return out


def leave(server, client, engine, out: list) -> None:
    """Agents that leave while the engine answers, or between two tries: their calls end, and nothing is recorded."""
    client.post("/api/rollouts", json=[{"input": {}, "rollout_id": "left"}])
    url = "/proxy/rollout/left/attempt/0/mode/train/openai/v1/chat/completions"
    for text in ("slow-leave", "busy-leave"):
        before = len(engine.requests)
        agent = http.client.HTTPConnection(server.url.removeprefix("http://"))
        agent.request("POST", url, json.dumps({"messages": [{"role": "user", "content": text}]}), {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
        while len(engine.requests) == before:
            time.sleep(0.01)
        during = client.get("/proxy/state").json()
        agent.close()
        while (after := client.get("/proxy/state").json())["inflight"]:
            time.sleep(0.01)
        out.append((f"left {text}", (during, after, client.get("/api/rollouts/left/events").json())))


def parallel(client, out: list) -> None:
    """Calls of one rollout at once: each is recorded once."""
    client.post("/api/rollouts", json=[{"input": {}, "rollout_id": "p"}])
    url = "/proxy/rollout/p/attempt/0/mode/train/openai/v1/chat/completions"
    threads = [threading.Thread(target=client.post, args=(url,), kwargs={"json": {"messages": [{"role": "user", "content": f"p-{i}"}]}}) for i in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    contents = [e["data"]["request"]["messages"][0]["content"] for e in client.get("/api/rollouts/p/events").json()]
    out.append(("calls at once", sorted(contents)))
    out.append(("in flight", client.get("/proxy/state").json()))
