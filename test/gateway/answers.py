"""Our server is killed with SIGKILL before each kind of request reaches it, and after each kind is done but not yet answered.
The clients repeat what was not answered, as those of the package do: what they asked for has happened once."""

import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from agentlightning.client import AgentLightningSyncClient

from servers import KEY, MODEL, Engine, Ours


class Between:
    """Stands between a client and the server, and kills the server once when it is told to: before or after a request."""

    def __init__(self, server: Ours) -> None:
        between = self
        self.server, self.kill, self.kills = server, "", 0
        self.lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                between.relay(self)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *args) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def relay(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        with self.lock:
            kill, self.kill = self.kill, ""
        answer = None
        if kill != "before":
            headers = {k: v for k, v in handler.headers.items() if k in ("Content-Type", "Authorization")}
            with self.server.client() as client:
                answer = client.request(handler.command, handler.path, content=body, headers=headers)
        if kill:
            self.server.end(signal.SIGKILL)
            self.server.start()
            self.kills += 1
            handler.close_connection = True  # without an answer
            return
        handler.send_response(answer.status_code)
        handler.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        if answer.status_code != httpx.codes.NO_CONTENT:
            handler.send_header("Content-Length", str(len(answer.content)))
        handler.end_headers()
        handler.wfile.write(answer.content)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def again(ask):
    """Repeats a request until it has an answer."""
    while True:
        try:
            return ask()
        except httpx.TransportError:
            pass


def run() -> list[str]:
    wrong, server, engine = [], Ours(), Engine()
    between = None
    try:
        server.start()
        between = Between(server)
        for kill in ("before", "after"):
            wrong += one(between, engine, kill)
        return wrong
    finally:
        if between:
            between.close()
        server.close()


def one(between: Between, engine: Engine, kill: str) -> list[str]:
    wrong: list[str] = []
    client = AgentLightningSyncClient(key=KEY, base_url=between.url, timeout=60)
    direct = between.server.reader
    ids = [f"{kill}-{i}" for i in range(3)]
    path = f"/api/rollouts/{ids[0]}"
    call = f"/proxy/rollout/{ids[0]}/attempt/0/mode/train/openai/v1/chat/completions"

    def check(what: str, got, want) -> None:
        if got != want:
            wrong.append(f"killed {kill} {what}: got {json.dumps(got)}, wanted {json.dumps(want)}")

    def step(what: str, ask, want_status: int, *same_status: int):
        """Makes a request whose first answer is lost. What is done twice may be answered with one of same_status."""
        kills = between.kills
        between.kill = kill
        answer = again(ask)
        if between.kills != kills + 1:
            wrong.append(f"{what}: the server was killed {between.kills - kills} times")
        if answer.status_code != want_status and not (kill == "after" and answer.status_code in same_status):
            wrong.append(f"killed {kill} {what}: {answer.status_code} {answer.text}")
        return answer

    def state() -> tuple:
        with direct() as c:
            status = c.get(path).json()["rollout"]["status"]
        return status["state"], status["version"]

    def listed(query: str) -> list:
        with direct() as c:
            answer = c.get("/api/rollouts" + query).json()
        return [r["rollout_id"] for r in (answer["items"] if isinstance(answer, dict) else answer) if r["rollout_id"] in ids]

    def marks() -> list:
        with direct() as c:
            return [e["data"].get("mark") or e["data"]["request"]["messages"][0]["content"] for e in c.get(path + "/events").json()]

    twice = 2 if kill == "after" else 1  # an event has no id by which the server could tell that it is repeated
    step("POST /api/models", lambda: client.post_with_retry("/api/models", json=[{"model": MODEL, "endpoint": engine.url}]), 201)
    made = step("POST /api/rollouts", lambda: client.post_with_retry("/api/rollouts", json=[{"rollout_id": i, "input": i} for i in ids]), 201).json()
    check("POST /api/rollouts", [r["input"] for r in made], ids)
    check("POST /api/rollouts", listed("?state_in=queuing"), ids)
    check("GET rollout", step("GET rollout", lambda: client.get(path), 200).json()["rollout"]["input"], ids[0])
    step("PATCH running", lambda: client.patch(path, json={"status": {"state": "running", "last_attempt_id": "0"}}), 200, 409)
    check("PATCH running", state(), ("running", 2))
    step("model call", lambda: client.post(call, json={"messages": [{"role": "user", "content": "c"}]}), 200)
    check("model call", marks(), ["c"] * twice)
    step("POST event", lambda: client.post(path + "/attempt/0/events", json={"event_type": "note", "data": {"mark": "n"}}), 200)
    check("POST event", marks(), ["c"] * twice + ["n"] * twice)
    step("PATCH succeeded", lambda: client.patch(path, json={"status": {"state": "succeeded"}}), 200, 409)
    check("PATCH succeeded", state(), ("succeeded", 3))
    check("PATCH succeeded", listed("/terminal?limit=100000"), [ids[0]])
    check("GET events", len(step("GET events", lambda: client.get(path + "/events", params={"format": "triplet"}), 200).json()), 1 + twice)
    step("GET terminal", lambda: client.get("/api/rollouts/terminal"), 200)
    step("GET list", lambda: client.get("/api/rollouts", params={"state_in": "queuing"}), 200)
    step("POST pause", lambda: client.post("/proxy/pause", json={"reason": kill}), 200)
    paused = step("GET state", lambda: client.get("/proxy/state"), 200).json()
    check("POST pause", paused, {"paused": True, "retry_after_seconds": 5, "reason": kill, "inflight": 0})
    step("POST resume", lambda: client.post("/proxy/resume"), 200)
    step("DELETE rollout", lambda: client.delete(path), 204)
    check("DELETE rollout", listed("?state_in=queuing&state_in=succeeded"), ids[1:])
    step("DELETE models", lambda: client.delete("/api/models"), 200)
    return wrong
