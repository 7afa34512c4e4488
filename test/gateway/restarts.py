"""Our server is stopped and started again, in order, in the middle of a trainer's polling: what it knows is still there."""

import signal
import sys
import threading

from agentlightning.client import AgentLightningSyncClient
from httpx_retries import Retry, RetryTransport

from servers import KEY, Ours


def run() -> list[str]:
    wrong = []
    server = Ours()
    try:
        server.start()
        client = server.client()
        client.post("/api/rollouts", json=[{"input": i, "rollout_id": str(i)} for i in range(20)])
        for i in range(5):
            for state in ("running", "succeeded"):
                client.patch(f"/api/rollouts/{i}", json={"status": {"state": state}})
        client.post("/api/models", json=[{"model": "m", "endpoint": "http://127.0.0.1:1/v1", "version": 2}])
        client.post("/proxy/pause", json={"retry_after_seconds": 3, "reason": "update"})
        before = [client.get(path).json() for path in ("/api/rollouts/terminal?after=2", "/proxy/state", "/api/rollouts/7")]
        client.close()
        # The same client as the trainer's.
        polling = AgentLightningSyncClient(base_url=server.url, key=KEY, timeout=120.0, transport=RetryTransport(retry=Retry(total=10, allowed_methods=["GET"])))
        over, polls = threading.Event(), []

        def poll() -> None:
            try:
                while not over.is_set():
                    for i in range(20):
                        response = polling.get(f"/api/rollouts/{i}")
                        response.raise_for_status()
                        polls.append(response.json()["rollout"]["input"] == i)
            except Exception as e:
                wrong.append(f"a poll has failed: {e!r}")

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            seen = len(polls)
            while len(polls) < seen + 50 and thread.is_alive():
                over.wait(0.01)
            server.end(sig)
            server.start()
        over.set()
        thread.join()
        client = server.reader()
        after = [client.get(path).json() for path in ("/api/rollouts/terminal?after=2", "/proxy/state", "/api/rollouts/7")]
        if before != after:
            wrong.append(f"before {before}, after {after}")
        call = client.post("/proxy/rollout/7/attempt/0/mode/train/openai/v1/chat/completions", json={})
        if call.status_code != 429:
            wrong.append(f"the pause is over: {call.status_code} {call.text}")
        if not all(polls):
            wrong.append("a poll has answered another rollout")
        print(f"restarts: {len(polls)} polls", file=sys.__stdout__)
        return wrong
    finally:
        server.close()
