"""What a program says to a store about live traffic and its run."""

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
    answer: bytes = b"{}"
    missing = 0
    """How many bytes of an answer are not sent."""
    taken: list[tuple[str, dict[str, str], Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.script.pop(0) if self.script else 200)
        self.send_header("Content-Length", str(len(self.answer) + self.missing))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Integer:
    """Stands for an integer of NumPy."""

    def __index__(self) -> int:
        return 2


class Live(unittest.TestCase):
    def setUp(self) -> None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        Server.script, Server.taken, Server.answer, Server.missing = [], [], b"{}", 0
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

    def test_a_turn(self) -> None:
        agl_go.late_reward("r", 1, turn="t-2")
        agl_go.Session(f"http://{self.host}", "r", "k", "", None).reward(0, turn="t-3")
        self.assertEqual([body["turn"] for _, _, body in Server.taken], ["t-2", "t-3"])

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

    def test_a_session(self) -> None:
        Server.answer = json.dumps({"session_id": "ro-1", "key": "sk-sess-1", "base_url": "http://p/v1", "version": "rs-1"}).encode()
        with agl_go.session(user="ada", metadata={"plan": "pro"}, proxy=f"http://{self.host}") as s:
            self.assertEqual((s.base_url, s.key, s.version), ("http://p/v1", "sk-sess-1", "rs-1"))
            s.reward({"a": 1}, source="user", call="chatcmpl-1", idempotency_key="k")
        Server.script = [410]
        s.end()
        started, reward, ended = Server.taken
        self.assertEqual((started[0], started[2]), ("/v1/agl/sessions", {"user": "ada", "metadata": {"plan": "pro"}}))
        self.assertEqual(started[1]["authorization"], "Bearer secret")
        self.assertEqual(reward[0], "/v1/agl/sessions/ro-1/reward")
        self.assertEqual(reward[1]["authorization"], "Bearer sk-sess-1")
        want = {"dimensions": {"a": 1.0}, "source": "user", "message": "", "call": "chatcmpl-1", "idempotency_key": "k"}
        self.assertEqual(reward[2], want)
        self.assertEqual((ended[0], ended[2]), ("/v1/agl/sessions/ro-1/end", {}))

    def test_a_session_whose_start_is_repeated(self) -> None:
        Server.answer = json.dumps({"session_id": "ro-1", "key": "k", "base_url": "http://p/v1"}).encode()
        Server.script = [503]
        agl_go.session(proxy=f"http://{self.host}")
        agl_go.session(proxy=f"http://{self.host}")
        first, repeat, other = (headers["idempotency-key"] for _, headers, _ in Server.taken)
        self.assertEqual(first, repeat)
        self.assertNotEqual(first, other)

    def test_a_session_that_was_idle(self) -> None:
        Server.answer = json.dumps({"session_id": "ro-1", "key": "k", "base_url": "http://p/v1"}).encode()
        with agl_go.session(proxy=f"http://{self.host}") as s:
            Server.script = [410]
        self.assertIsNone(s.version)

    @mock.patch("time.sleep")
    def test_a_session_whose_end_failed(self, sleep: mock.Mock) -> None:
        s = agl_go.Session(f"http://{self.host}", "ro-1", "k", "http://p/v1", None)
        Server.script = [503] * 5
        with self.assertRaisesRegex(agl_go.LiveError, "answers 503"):
            s.end()
        s.end()
        s.end()
        self.assertEqual(len(Server.taken), 5 + 1, "the second call ends it, the third does nothing")

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

    def test_what_is_no_store(self) -> None:
        for url in "127.0.0.1:4747", "store.example/agl", f"ftp://agl:secret@{self.host}":
            with self.assertRaisesRegex(agl_go.LiveError, "must begin with http:// or https://") as caught:
                agl_go.late_reward("r", 1, store=url)
            self.assertNotIn("secret", str(caught.exception))
        Server.answer = b"<html>Log in</html>"
        with self.assertRaisesRegex(agl_go.LiveError, "answers no JSON, .*Log in"):
            agl_go.late_reward("r", 1)

    @mock.patch("time.sleep")
    def test_an_answer_that_breaks_off(self, sleep: mock.Mock) -> None:
        Server.missing = 1
        with self.assertRaisesRegex(agl_go.LiveError, "does not answer"):
            agl_go.late_reward("r", 1)
        self.assertEqual(len(Server.taken), sleep.call_count + 1)
        with mock.patch.dict(os.environ, {"AGL_EMIT_URL": f"http://{self.host}"}), mock.patch("agl_go._emit.RETRY_SECONDS", 0):
            with self.assertRaisesRegex(agl_go.EmitError, "does not answer"):
                agl_go.emit_reward(1)

    def test_metrics_of_a_run(self) -> None:
        agl_go.log_metrics(1, {"loss": 0.5, "nan": float("nan"), "validation": {"loss": 1, "ratio": {"max": "2"}}}, run="a/b", name="mine")
        agl_go.log_metrics(Integer(), {"loss": 0.25}, run="a/b")
        agl_go.end_run("failed", error="no GPU", run="a/b")
        self.assertEqual(
            [(path, body) for path, _, body in Server.taken],
            [
                ("/v1/agl/runs", {"run_id": "a/b", "name": "mine", "algorithm": ""}),
                ("/v1/agl/runs/a%2Fb/metrics", {"step": 1, "values": {"loss": 0.5, "validation/loss": 1.0, "validation/ratio/max": 2.0}}),
                ("/v1/agl/runs/a%2Fb/metrics", {"step": 2, "values": {"loss": 0.25}}),
                ("/v1/agl/runs/a%2Fb", {"status": "failed", "error": "no GPU"}),
            ],
        )
        self.assertEqual(Server.taken[0][1]["authorization"], "Bearer secret")

    def test_the_run_of_agl_train(self) -> None:
        with mock.patch.dict(os.environ, {"AGL_RUN_ID": "ru-1"}):
            agl_go.log_metrics(3, {"reward_mean": 1})
        self.assertEqual([path for path, _, _ in Server.taken], ["/v1/agl/runs", "/v1/agl/runs/ru-1/metrics"])
        with self.assertRaisesRegex(agl_go.LiveError, "AGL_RUN_ID is not set"):
            agl_go.log_metrics(3, {"reward_mean": 1})
        with self.assertRaises(ValueError):
            agl_go.log_metrics(3, {"reward_mean": "much"}, run="ru-1")


if __name__ == "__main__":
    unittest.main()
