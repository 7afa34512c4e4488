"""What an agent reads and says, with the environment that the runner makes."""

from __future__ import annotations

import http.server
import json
import math
import os
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, Callable, Optional
from unittest import mock

import agl_go

RESOURCES = {
    "system": {"resource_type": "prompt_template", "template": "Be brief, {name}.", "engine": "f-string"},
    "main": {"resource_type": "proxy_llm", "endpoint": "http://proxy", "model": "m", "api_key": None, "sampling_parameters": {"temperature": 1.0}},
    "judge": {"resource_type": "llm", "endpoint": "http://judge/v1", "model": "j", "api_key": "k", "sampling_parameters": {}},
}

VARIABLES = {
    "AGL_ROLLOUT_ID": "ro-1",
    "AGL_ATTEMPT_ID": "at-1",
    "AGL_MODE": "train",
    "AGL_WORKER_ID": "w-1",
    "AGL_STORE_URL": "http://store",
    "AGL_MODEL": "m",
    "OPENAI_BASE_URL": "http://proxy/rollout/ro-1/attempt/at-1/v1",
    "OPENAI_API_KEY": "secret",
}


class AttemptTest(unittest.TestCase):
    """A test with an attempt of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.result_file = self.folder / "result.json"
        variables = {**VARIABLES, "AGL_TASK_FILE": self.write("task.json", {"question": "1 + 1 = ?", "größe": 1.0})}
        variables["AGL_RESOURCES_FILE"] = self.write("resources.json", RESOURCES)
        variables["AGL_RESULT_FILE"] = str(self.result_file)
        self.enter({**{k: v for k, v in os.environ.items() if not k.startswith(("AGL_", "OPENAI_"))}, **variables})

    def enter(self, variables: dict[str, str]) -> None:
        patch = mock.patch.dict(os.environ, variables, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def without(self, *names: str) -> None:
        self.enter({k: v for k, v in os.environ.items() if k not in names})

    def write(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
        return str(path)

    def result(self) -> Any:
        self.assertEqual([p.name for p in self.folder.glob("result*")], ["result.json"], "nothing else is left")
        return json.loads(self.result_file.read_text(encoding="utf-8"))


class Finds(AttemptTest):
    def test_its_task(self) -> None:
        self.assertEqual(agl_go.task(), {"question": "1 + 1 = ?", "größe": 1.0})

    def test_its_task_by_hand(self) -> None:
        self.without("AGL_TASK_FILE")
        os.environ["AGL_TASK"] = "[1, null]"
        self.assertEqual(agl_go.task(), [1, None])
        os.environ["AGL_TASK"] = "add 2 and 3"
        with self.assertRaisesRegex(ValueError, "AGL_TASK is 'add 2 and 3', which is not JSON"):
            agl_go.task()

    def test_its_model_by_hand(self) -> None:
        self.without("AGL_RESOURCES_FILE")
        llm = agl_go.llm()
        self.assertEqual((llm.base_url, llm.api_key, llm.model, llm.sampling_parameters), (VARIABLES["OPENAI_BASE_URL"], "secret", "m", {}))

    def test_its_resources(self) -> None:
        self.assertEqual(agl_go.resources(), RESOURCES)
        self.assertEqual(list(agl_go.resources()), list(RESOURCES))
        self.assertEqual(agl_go.prompt("system"), "Be brief, {name}.")

    def test_its_model(self) -> None:
        llm = agl_go.llm()
        self.assertEqual((llm.base_url, llm.api_key, llm.model), (VARIABLES["OPENAI_BASE_URL"], "secret", "m"))
        self.assertEqual(llm.sampling_parameters, {"temperature": 1.0})
        self.assertNotIn("secret", repr(llm))

    def test_its_rollout(self) -> None:
        self.assertEqual(agl_go.rollout(), agl_go.Rollout("ro-1", "at-1", "train", "w-1", "http://store"))
        self.without("AGL_MODE", "AGL_WORKER_ID", "AGL_STORE_URL")
        self.assertEqual(agl_go.rollout(), agl_go.Rollout("ro-1", "at-1", None, None, None))

    def test_what_is_not_there(self) -> None:
        with self.assertRaisesRegex(agl_go.ResourceError, r"'user'; the resources hold \['system'\]"):
            agl_go.prompt("user")
        with self.assertRaisesRegex(agl_go.ResourceError, r"'main'"):  # a model is no prompt
            agl_go.prompt("main")
        self.write("resources.json", {})
        with self.assertRaisesRegex(agl_go.ResourceError, "hold none"):
            agl_go.prompt("system")
        with self.assertRaisesRegex(agl_go.ResourceError, "no model"):
            agl_go.llm()

    def test_outside_of_an_attempt(self) -> None:
        self.without(*(n for n in os.environ if n.startswith("AGL_")))
        for call, variable in (
            (agl_go.task, "AGL_TASK"),
            (agl_go.resources, "AGL_RESOURCES_FILE"),
            (agl_go.llm, "AGL_MODEL"),
            (agl_go.rollout, "AGL_ROLLOUT_ID"),
            (lambda: agl_go.prompt("system"), "AGL_RESOURCES_FILE"),
            (lambda: agl_go.emit_reward(1), "AGL_RESULT_FILE"),
            (lambda: agl_go.error("x"), "AGL_RESULT_FILE"),
            (lambda: agl_go.emit_message("x"), "AGL_EMIT_URL"),
            (lambda: agl_go.serve(lambda task: None), "AGL_TASK"),
        ):
            with self.subTest(variable), self.assertRaisesRegex(agl_go.NoAttemptError, f"^{variable} is not set.*agl-go runner"):
                call()

    def test_outside_of_a_handler(self) -> None:
        """agl has started this process, and gives it its tasks on standard input."""
        self.without(*(n for n in os.environ if n.startswith("AGL_")))
        os.environ["AGL_KEEPALIVE"] = "stdio"
        with self.assertRaisesRegex(agl_go.NoAttemptError, "^AGL_TASK is not set.*only while agl_go.serve calls its handler"):
            agl_go.task()
        emissions: list[tuple[Callable[[Any], None], Any]] = [
            (agl_go.emit_message, "x"),
            (agl_go.emit_object, 1),
            (agl_go.emit_exception, ValueError("x")),
        ]
        for emit, value in emissions:
            with self.assertRaisesRegex(agl_go.NoAttemptError, "^AGL_ATTEMPT_ID is not set.*only while agl_go.serve calls its handler"):
                emit(value)


class Number:
    """A number of a library that is not here, such as NumPy's."""

    def __float__(self) -> float:
        return 0.25


class Tensor:
    """A number only if it has one element, as in PyTorch."""

    def __float__(self) -> float:
        raise RuntimeError("it has 2 elements")

    def __repr__(self) -> str:
        return "Tensor()"


class Says(AttemptTest):
    def test_rewards(self) -> None:
        cases: list[tuple[agl_go.Reward, Optional[str], Any]] = [
            (0.7, None, {"reward": 0.7}),
            (1, None, {"reward": 1.0}),
            (True, None, {"reward": 1.0}),
            (Number(), None, {"reward": 0.25}),
            ({"accuracy": 1, "brevity": 0.3}, None, {"rewards": {"accuracy": 1.0, "brevity": 0.3}}),
            ({"accuracy": 1, "brevity": 0.3}, "brevity", {"rewards": {"brevity": 0.3, "accuracy": 1.0}}),
        ]
        for reward, primary, want in cases:
            with self.subTest(str(reward)):
                agl_go.emit_reward(reward, primary=primary)
                self.assertEqual(json.dumps(self.result()), json.dumps(want))  # the order counts

    def test_bad_rewards(self) -> None:
        cases: list[tuple[Any, Optional[str], type[Exception], str]] = [
            ("0.7", None, TypeError, "the reward is '0.7', must be a number"),
            (None, None, TypeError, "the reward is None, must be a number"),
            ([1.0], None, TypeError, "must be a number"),
            (Tensor(), None, TypeError, r"the reward is Tensor\(\), must be a number \(it has 2 elements\)"),
            (math.nan, None, ValueError, "the reward is nan, must be finite"),
            ({"a": math.inf}, None, ValueError, "the reward's dimension 'a' is inf, must be finite"),
            (10**400, None, ValueError, "the reward is too large for a float, must be finite"),
            ({"a": "b"}, None, TypeError, "the reward's dimension 'a' is 'b', must be a number"),
            ({1: 1.0}, None, TypeError, "named 1, must be a string"),
            ({}, None, ValueError, "at least one"),
            ({"a": 1.0}, "b", ValueError, r"primary is 'b', must be one of \['a'\]"),
            (1.0, "b", ValueError, "has no dimensions"),
        ]
        for reward, primary, kind, message in cases:
            with self.subTest(str(reward)), self.assertRaisesRegex(kind, message):
                agl_go.emit_reward(reward, primary=primary)
        self.assertFalse(self.result_file.exists())

    def test_the_last_reward_counts(self) -> None:
        agl_go.emit_reward({"a": 1.0})
        agl_go.emit_reward(0.5)
        self.assertEqual(self.result(), {"reward": 0.5})
        agl_go.emit_reward({"b": 1.0})
        self.assertEqual(self.result(), {"rewards": {"b": 1.0}})

    def test_an_error_stays(self) -> None:
        agl_go.emit_reward(0.5)
        agl_go.error("läuft nicht")
        agl_go.emit_reward(0.75)
        self.assertEqual(self.result(), {"reward": 0.75, "error": "läuft nicht"})
        agl_go.error("")
        self.assertEqual(self.result()["error"], "the agent gives no reason")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Takes emissions as agl's proxy does, after the answers in `script`."""

    script: list[int] = []
    taken: list[tuple[dict[str, str], Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.taken.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.script.pop(0) if self.script else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Emits(AttemptTest):
    def setUp(self) -> None:
        super().setUp()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        Proxy.script, Proxy.taken = [], []
        os.environ["AGL_EMIT_URL"] = f"http://127.0.0.1:{server.server_address[1]}/rollout/ro-1/attempt/at-1/v1/emit"
        os.environ["AGL_EMIT_KEY"] = "secret"
        os.environ["TRACEPARENT"] = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    def bodies(self) -> list[Any]:
        return [{k: v for k, v in body.items() if k != "span_id"} for _, body in Proxy.taken]

    def test_each_reward_once(self) -> None:
        for reward in (0.25, {"a": 1, "b": 0}):
            agl_go.emit_reward(reward)
        self.assertEqual(self.bodies(), [{"reward": 0.25}, {"rewards": {"a": 1.0, "b": 0.0}}])
        self.assertFalse(self.result_file.exists(), "it would count twice")
        headers, _ = Proxy.taken[0]
        self.assertEqual(headers["authorization"], "Bearer secret")
        self.assertEqual(headers["traceparent"], os.environ["TRACEPARENT"])
        self.assertEqual(len({body["span_id"] for _, body in Proxy.taken}), 2)

    def test_a_returned_reward_is_one_more(self) -> None:
        """Two steps may earn the same. That the second reward is returned must not lose it."""

        def handle(task: Any) -> float:
            agl_go.emit_reward(0.5)
            return 0.5

        agl_go.serve(handle)
        self.assertEqual(self.bodies(), [{"reward": 0.5}, {"reward": 0.5}])

    def test_other_things(self) -> None:
        agl_go.emit_message("läuft")
        agl_go.emit_object({"a": [1, None]})
        try:
            raise KeyError("k")
        except KeyError as err:
            agl_go.emit_exception(err)
        message, value, exception = self.bodies()
        self.assertEqual((message, value), ({"message": "läuft"}, {"object": {"a": [1, None]}}))
        self.assertEqual((exception["exception"]["type"], exception["exception"]["message"]), ("KeyError", "'k'"))
        self.assertIn("raise KeyError", exception["exception"]["stacktrace"])

    def test_an_exception_without_a_text(self) -> None:
        class Broken(Exception):
            def __str__(self) -> str:
                raise AttributeError("the response was never set")

        agl_go.emit_exception(Broken())
        (exception,) = self.bodies()
        self.assertIn("its __str__ fails", exception["exception"]["message"])
        self.assertIn("Broken", exception["exception"]["stacktrace"])

    def test_a_proxy_that_is_busy(self) -> None:
        Proxy.script = [503]
        agl_go.emit_reward(0.5)
        (_, first), (_, second) = Proxy.taken
        self.assertEqual(first, second, "the repeat has the same span id")

    def test_a_store_that_is_away(self) -> None:
        """As it is when its machine is started again. Runners wait a minute for it, too."""
        now = 0.0

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

        with mock.patch("agl_go._emit.time", mock.Mock(sleep=sleep, monotonic=lambda: now)):
            Proxy.script = [503] * 14
            agl_go.emit_reward(0.5)
            self.assertTrue(40 < now < 60, now)
            now, Proxy.script = 0.0, [503] * 100
            with self.assertRaisesRegex(agl_go.EmitError, "answers 503"):
                agl_go.emit_reward(0.5)
            self.assertTrue(50 < now < 60, now)

    def test_a_proxy_that_refuses(self) -> None:
        Proxy.script = [410]
        with self.assertRaisesRegex(agl_go.EmitError, "answers 410"):
            agl_go.emit_reward(0.5)
        self.assertEqual(len(Proxy.taken), 1)
        self.assertFalse(self.result_file.exists())

    def test_without_the_route(self) -> None:
        Proxy.script = [404, 405]
        agl_go.emit_reward(0.5)
        self.assertEqual(self.result(), {"reward": 0.5})
        with self.assertRaisesRegex(agl_go.NoAttemptError, "AGL_EMIT_URL"):
            agl_go.emit_message("m")


if __name__ == "__main__":
    unittest.main()
