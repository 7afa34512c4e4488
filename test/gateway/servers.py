"""The servers under test, and a stand-in for an inference engine."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from httpx_retries import Retry, RetryTransport

CANARY = "canary-9c41e7a2"  # in the key: no server may say or keep it
KEY = "secret-" + CANARY
MODEL = "m"


class Server:
    """A server in a process of its own. Its socket belongs to the test, so that it stays open between two lives."""

    name = ""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory()
        self.log = open(os.path.join(self.folder.name, "log"), "ab")
        self.process: subprocess.Popen | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command(), stdout=self.log, stderr=self.log, cwd=self.folder.name, pass_fds=self.pass_fds(), start_new_session=True
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                with self.client(timeout=10) as client:
                    client.get("/healthz").raise_for_status()
                return
            except httpx.HTTPError as e:
                ended = self.process.poll()
                if ended is None and time.monotonic() < deadline:
                    threading.Event().wait(0.05)
                    continue
                if ended is None:  # what each goroutine waits for goes to the log
                    self.end(signal.SIGQUIT)
                state = "is not ready after 60 s" if ended is None else f"has ended with {ended}"
                raise RuntimeError(f"{self.name} {state} ({e!r}):\n{self.said()}") from e

    def pass_fds(self) -> tuple[int, ...]:
        return (self.socket.fileno(),)

    def client(self, timeout: float = 60) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=timeout)

    def reader(self) -> httpx.Client:
        """A client that repeats a GET without an answer, as the package's own does."""
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60,
            transport=RetryTransport(retry=Retry(total=5, allowed_methods=["GET"])),
        )

    def end(self, sig: int) -> None:
        self.process.send_signal(sig)
        self.process.wait(timeout=30)

    def close(self) -> None:
        if sys.exc_info()[0]:  # a test has failed: what the server said may tell why
            print(f"{self.name}, ended with {self.process and self.process.poll()}:\n{self.said()[-8000:]}", file=sys.__stderr__)
        if self.process and self.process.poll() is None:
            self.end(signal.SIGKILL)
        self.socket.close()
        self.log.close()
        try:
            self.look()
        finally:
            self.folder.cleanup()

    def look(self) -> None:
        """Looks for secrets in what the server has left behind."""

    def said(self) -> str:
        with open(self.log.name, errors="replace") as f:
            return f.read()


class Ours(Server):
    name = "agl store --gateway"

    def look(self) -> None:
        # Not in folders: those are of the package's trainer, which writes down its settings.
        files = [f.path for f in os.scandir(self.folder.name) if f.is_file()]
        assert any(f.endswith("agl.db") for f in files), files
        for name in files:
            with open(name, "rb") as f:
                if (at := (text := f.read()).find(CANARY.encode())) >= 0:
                    raise AssertionError(f"{name} has a secret: {text[max(0, at - 100) : at + 100]!r}")

    def command(self) -> list[str]:
        database = "sqlite:" + os.path.join(self.folder.name, "agl.db")
        agl = [os.environ["AGL_BINARY"], "store", "--gateway", "--gateway-key", KEY, "--gateway-model", MODEL, "--db", database]
        # The shell makes the socket number 3 and names its own process, which becomes the server. Others read no number above 9.
        return ["/bin/bash", "-c", f'exec 3<&{self.socket.fileno()}; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"', "sh", *agl]


class Theirs(Server):
    name = "agl-server"

    def __init__(self) -> None:
        super().__init__()
        self.socket.close()  # agl-server opens its own, at a port below the ephemeral ones: no other program gets it meanwhile
        while True:
            self.port = random.randint(10_000, 32_767)
            self.socket = socket.socket(type=socket.SOCK_DGRAM)  # marks the port, as Go's suites mark theirs
            try:
                self.socket.bind(("127.0.0.1", self.port))
                socket.create_server(("127.0.0.1", self.port)).close()
                break
            except OSError:
                self.socket.close()
        self.url = f"http://127.0.0.1:{self.port}"

    def pass_fds(self) -> tuple[int, ...]:
        return ()

    def command(self) -> list[str]:
        return ["agl-server", f"key={KEY}", f"port={self.port}", "host=127.0.0.1", f"default_proxy.model_name={MODEL}"]


class Engine:
    """Answers like vLLM. What the last message says decides how: "fail", "text", "flaky", "slow-leave", "busy-leave" or anything."""

    def __init__(self) -> None:
        engine = self
        self.requests: list[dict] = []
        self.flaky: dict[str, int] = {}
        self.lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engine.answer(self, body)

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that was killed
        self.url = "http://127.0.0.1:%d/v1" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: dict) -> None:
        text = str(body.get("prompt") or (body.get("messages") or [{"content": ""}])[-1]["content"])
        with self.lock:
            self.requests.append({"path": handler.path, "body": body, "authorization": handler.headers.get("Authorization")})
            self.flaky[text] = self.flaky.get(text, 0) + 1
            tries = self.flaky[text]
        status, kind, reply = 200, "application/json", json.dumps(self.completion(handler.path, text, body))
        if text == "slow-leave":
            while handler.connection.recv(1):  # until the server hangs up
                pass
            return
        if text == "busy-leave":
            status, reply = 503, "{}"
        if text == "fail":
            status, reply = 400, '{"error": {"message": "too long"}}'
        elif text == "text":
            kind, reply = "text/plain", "hello"
        elif text.startswith("flaky") and tries < 3:
            status, reply = 503, "{}"
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(reply.encode())))
        handler.end_headers()
        handler.wfile.write(reply.encode())

    def completion(self, path: str, text: str, body: dict) -> dict:
        prompt, answer = [ord(c) % 101 for c in text], [len(text), 7]
        choice: dict = {"index": 0, "finish_reason": "stop", "token_ids": answer}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": str(t), "logprob": -0.5 * t} for t in answer]}
        out = {"id": "c", "model": body["model"], "choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": 2}}
        if path.endswith("chat/completions"):
            choice["message"] = {"role": "assistant", "content": "ok"}
            out["prompt_token_ids"] = prompt
        else:
            choice["text"], choice["prompt_token_ids"] = "ok", prompt
        return out
