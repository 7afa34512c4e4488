"""A scripted model behind the proxies: it answers as vLLM does, and its tokens are characters."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable


def tokens(text: str) -> list[int]:
    """The token ids of a text: its characters."""
    return [ord(c) for c in text]


def prompt_of(messages: list[dict[str, Any]]) -> str:
    return "".join(f"<{m['role']}>{m.get('content') or ''}" for m in messages) + "<assistant>"


def reply_to(messages: list[dict[str, Any]]) -> str:
    """What the model says: the last message, turned around."""
    return messages[-1]["content"][::-1]


class Backend(BaseHTTPRequestHandler):
    """Answers chat completions as vLLM does: token ids and log-probabilities if asked for, streamed a character a chunk."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, q))
            number = len(self.server.requests)
        if q["messages"][-1]["content"] == "fail":
            return self._send(400, "application/json", [json.dumps({"error": {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}})])
        prompt, text = prompt_of(q["messages"]), self.server.reply(q)
        head = {"id": f"chatcmpl-{number}", "created": 1700000000, "model": q["model"]}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(text), "total_tokens": len(prompt) + len(text)}
        want_ids = q.get("return_token_ids", False)
        if not q.get("stream"):
            choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": []}, "logprobs": self._logprobs(q, text), "finish_reason": "stop", "stop_reason": None}
            body: dict[str, Any] = {**head, "object": "chat.completion", "choices": [choice], "usage": usage, "prompt_logprobs": None}
            if want_ids:
                choice["token_ids"] = tokens(text)
                body["prompt_token_ids"] = tokens(prompt)
            return self._send(200, "application/json", [json.dumps(body)])
        head["object"] = "chat.completion.chunk"
        chunks: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]}]
        if want_ids:
            chunks[0]["prompt_token_ids"] = tokens(prompt)
        for i, c in enumerate(text):
            choice = {"index": 0, "delta": {"content": c}, "logprobs": self._logprobs(q, c), "finish_reason": "stop" if i == len(text) - 1 else None}
            if want_ids:
                choice["token_ids"] = tokens(c)
            chunks.append({**head, "choices": [choice]})
        if q.get("stream_options", {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": usage})
        self._send(200, "text/event-stream; charset=utf-8", [f"data: {json.dumps(c)}\n\n" for c in chunks] + ["data: [DONE]\n\n"])

    @staticmethod
    def _logprobs(q: dict[str, Any], text: str) -> Any:
        if not q.get("logprobs"):
            return None
        return {"content": [{"token": c, "logprob": -0.5, "bytes": list(c.encode()), "top_logprobs": []} for c in text]}

    def _send(self, status: int, kind: str, pieces: list[str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in [*pieces, ""]:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """The backend, with the requests that it has seen. What it says is up to a function of the request."""

    daemon_threads = True

    def __init__(self, reply: Callable[[dict[str, Any]], str] = lambda q: reply_to(q["messages"])) -> None:
        super().__init__(("127.0.0.1", 0), Backend)
        self.reply = reply
        self.lock = threading.Lock()
        self.requests: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> "Server":
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
