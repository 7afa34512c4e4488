"""What a program says to a store about live traffic."""

from __future__ import annotations

import datetime
import http.server
import json
import os
import threading
import unittest
from typing import Any
from unittest import mock

import agl_go


class Server(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted, and answers with the statuses in `script`, then 200."""

    script: list[int] = []
    taken: list[tuple[str, dict[str, str], Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.script.pop(0) if self.script else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Live(unittest.TestCase):
    def setUp(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        Server.script, Server.taken = [], []
        self.host = f"127.0.0.1:{server.server_address[1]}"
        patch = mock.patch.dict(os.environ, {"AGL_STORE_URL": f"http://{self.host}", "AGL_TOKEN": "secret"})
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_late_reward(self) -> None:
        at = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
        agl_go.late_reward("ro/1", 1, source="user", message="thanks", call="chatcmpl-1", at=at, idempotency_key="k")
        ((path, headers, body),) = Server.taken
        self.assertEqual(path, "/v1/agl/rollouts/ro%2F1/rewards")
        self.assertEqual(headers["authorization"], "Bearer secret")
        want = {"value": 1.0, "source": "user", "message": "thanks", "call": "chatcmpl-1", "at": 1577836800.0, "idempotency_key": "k"}
        self.assertEqual(body, want)

    def test_dimensions(self) -> None:
        agl_go.late_reward("r", {"b": 1, "a": 0.5}, primary="a", store=f"http://agl:other@{self.host}/", key=None)
        _, headers, body = Server.taken[0]
        self.assertEqual(list(body["dimensions"].items()), [("a", 0.5), ("b", 1.0)])
        self.assertEqual(headers["host"], self.host)

    def test_a_repeat_has_the_same_key(self) -> None:
        Server.script = [503]
        agl_go.late_reward("r", 1)
        first, second = (body for _, _, body in Server.taken)
        self.assertEqual(first, second)
        self.assertTrue(first["idempotency_key"])

    def test_refused(self) -> None:
        Server.script = [409]
        with self.assertRaisesRegex(agl_go.LiveError, "answers 409"):
            agl_go.late_reward("r", 1)
        self.assertEqual(len(Server.taken), 1)
        with self.assertRaises(ValueError):
            agl_go.late_reward("r", float("nan"))
        del os.environ["AGL_STORE_URL"]
        with self.assertRaisesRegex(agl_go.LiveError, "AGL_STORE_URL is not set"):
            agl_go.late_reward("r", 1)


if __name__ == "__main__":
    unittest.main()
