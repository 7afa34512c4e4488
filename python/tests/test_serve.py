"""serve, as a runner sees it: a process that gets lines and answers with lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path
from typing import Any


class Serve(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_agent(self, program: str, lines: list[dict[str, Any]], **variables: str) -> "subprocess.CompletedProcess[str]":
        """Runs a program until it ends; lines are its standard input."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AGL_")}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
            input="".join(json.dumps(line) + "\n" for line in lines),
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    def line(self, number: int, task: Any) -> dict[str, Any]:
        """What a runner writes for a task."""
        files = {}
        for name, value in (("TASK", task), ("RESOURCES", {})):
            path = self.folder / f"{name}-{number}.json"
            path.write_text(json.dumps(value))
            files[f"AGL_{name}_FILE"] = str(path)
        own = {"AGL_ROLLOUT_ID": f"ro-{number}", "AGL_ATTEMPT_ID": f"at-{number}", "AGL_RESULT_FILE": str(self.result(number))}
        return {"rollout_id": f"ro-{number}", "attempt_id": f"at-{number}", "mode": "train", "task": task, "env": {**files, **own}}

    def result(self, number: int) -> Path:
        return self.folder / f"result-{number}.json"

    def kept(self, program: str, *tasks: Any) -> "tuple[list[Any], subprocess.CompletedProcess[str]]":
        done = self.run_agent(program, [self.line(n, t) for n, t in enumerate(tasks)], AGL_KEEPALIVE="stdio")
        return [json.loads(line) for line in done.stdout.splitlines() if line != "served"], done

    def test_many_tasks(self) -> None:
        replies, done = self.kept(
            """
            import subprocess, sys
            import agl_go

            def handle(task):
                assert agl_go.task() == task
                print('{"reward": 9}')  # not a reply, whatever it looks like
                subprocess.run([sys.executable, "-c", "print('{}')"], check=True)
                if task == "raise":
                    raise ValueError("no\\nsuch thing")
                if task == "error":
                    return agl_go.error("gave up")
                if task == "emit":
                    return agl_go.emit_reward(0.5)
                if task == "dimensions":
                    return {"a": 1, "b": 0}
                if task == "bad":
                    return "1"
                return agl_go.rollout().rollout_id == "ro-5"

            agl_go.serve(handle)
            try:
                agl_go.task()
            except agl_go.NoAttemptError:
                print("served")
            """,
            "raise", "error", "emit", "dimensions", "bad", "last",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("\nserved\n"), "standard output is the program's again")
        self.assertEqual(
            replies,
            [
                {"attempt_id": "at-0", "error": "ValueError: no\nsuch thing"},
                {"attempt_id": "at-1"},
                {"attempt_id": "at-2"},
                {"attempt_id": "at-3", "rewards": {"a": 1.0, "b": 0.0}},
                {"attempt_id": "at-4", "error": "TypeError: the reward is '1', must be a number"},
                {"attempt_id": "at-5", "reward": 1.0},
            ],
        )
        self.assertEqual(json.loads(self.result(1).read_text()), {"error": "gave up"})
        self.assertEqual(json.loads(self.result(2).read_text()), {"reward": 0.5})
        self.assertEqual(done.stderr.count('{"reward": 9}'), 6)
        self.assertIn("Traceback", done.stderr)

    def test_a_handler_that_awaits_what_was_cancelled(self) -> None:
        replies, done = self.kept(
            """
            import asyncio
            import agl_go

            async def handle(task):
                if task == "cancel":
                    own = asyncio.ensure_future(asyncio.sleep(60))
                    own.cancel()
                    await own
                return 1

            agl_go.serve(handle)
            """,
            "cancel", "next",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([r.get("error", r.get("reward")) for r in replies], ["asyncio.exceptions.CancelledError", 1.0])

    def test_an_exception_with_a_long_message(self) -> None:
        """A runner refuses a reply of more than 1 MiB, and with it the reason."""
        replies, done = self.kept(
            """
            import agl_go

            def handle(task):
                if task == "raise":
                    raise ValueError("no page: " + 600_000 * "ü")
                agl_go.error("no page: " + 600_000 * "ü")

            agl_go.serve(handle)
            """,
            "raise", "error",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr[-1000:])
        for result, begins in (json.dumps(replies[0]), "ValueError: no page: ü"), (self.result(1).read_text(), "no page: ü"):
            self.assertLess(len(result), 1 << 20)
            self.assertTrue(json.loads(result)["error"].startswith(begins))

    def test_an_error_counts_whatever_the_handler_returns(self) -> None:
        replies, done = self.kept(
            """
            import agl_go

            def handle(task):
                agl_go.error("gave up") if task == "error" else agl_go.emit_reward(0.5)
                return 1

            agl_go.serve(handle)
            """,
            "error", "emit",
        )  # fmt: skip
        self.assertEqual(replies, [{"attempt_id": "at-0"}, {"attempt_id": "at-1"}], done.stderr)
        self.assertEqual(json.loads(self.result(0).read_text()), {"error": "gave up", "reward": 1.0})
        self.assertEqual(json.loads(self.result(1).read_text()), {"reward": 1.0})

    def test_standard_input_is_empty(self) -> None:
        replies, done = self.kept(
            """
            import subprocess, sys
            import agl_go

            def handle(task):
                assert subprocess.run(["cat"], stdout=subprocess.PIPE, check=True).stdout == b""
                try:
                    input()
                except EOFError:
                    return task

            agl_go.serve(handle)
            """,
            1, 2,
        )  # fmt: skip
        self.assertEqual([r["reward"] for r in replies], [1.0, 2.0], done.stderr)

    def test_one_loop_for_async_handlers(self) -> None:
        replies, done = self.kept(
            """
            import asyncio
            import agl_go

            loops = set()

            async def handle(task):
                await asyncio.sleep(0)
                loops.add(asyncio.get_running_loop())
                return len(loops)

            agl_go.serve(handle)
            """,
            1, 2,
        )  # fmt: skip
        self.assertEqual([r["reward"] for r in replies], [1.0, 1.0], done.stderr)

    def test_what_an_async_handler_leaves_behind_is_cancelled(self) -> None:
        _, done = self.kept(
            """
            import asyncio, sys
            import agl_go

            left = []

            async def background():
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    print("cleaned up", file=sys.stderr)

            async def handle(task):
                left.append(asyncio.ensure_future(background()))
                await asyncio.sleep(0)

            agl_go.serve(handle)
            """,
            1,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr), (0, "cleaned up\n"))

    def test_what_an_async_handler_leaves_behind_is_of_its_attempt(self) -> None:
        replies, done = self.kept(
            """
            import asyncio
            import agl_go

            second = None

            async def slow():
                await second.wait()
                agl_go.emit_reward(agl_go.task() / 4)
                assert agl_go.rollout().rollout_id == "ro-0"

            async def fails():
                raise ValueError("no")

            async def handle(task):
                global second
                if second is None:
                    second = asyncio.Event()
                    await asyncio.gather(slow(), fails())
                second.set()
                await asyncio.sleep(0)
                assert agl_go.rollout().rollout_id == "ro-1"
                return task

            agl_go.serve(handle)
            """,
            1, 2,
        )  # fmt: skip
        self.assertEqual(replies, [{"attempt_id": "at-0", "error": "ValueError: no"}, {"attempt_id": "at-1", "reward": 2.0}], done.stderr)
        self.assertEqual(json.loads(self.result(0).read_text()), {"reward": 0.25})
        self.assertFalse(self.result(1).exists())

    def test_an_async_handler_in_a_running_loop(self) -> None:
        replies, done = self.kept(
            """
            import asyncio
            import agl_go

            async def handle(task):
                return 1

            async def main():
                agl_go.serve(handle)

            asyncio.run(main())
            """,
            1, 2,
        )  # fmt: skip
        self.assertEqual([("outside of asyncio.run" in r["error"]) for r in replies], [True, True], done.stderr)
        self.assertEqual((done.returncode, "never awaited" in done.stderr), (0, False), done.stderr)

    def test_an_exit_ends_the_process(self) -> None:
        replies, done = self.kept("import agl_go, sys; agl_go.serve(lambda task: sys.exit(3))", 1, 2)
        self.assertEqual((replies, done.returncode), ([], 3))

    def test_an_exit_without_a_failure_ends_the_task(self) -> None:
        """As libraries for commands do it, whose main functions never return."""
        replies, done = self.kept(
            """
            import agl_go, sys

            async def later(status):
                sys.exit(status)

            def handle(task):
                if task == "async":
                    return later(0)
                if task == "emit":
                    agl_go.emit_reward(0.5)
                    sys.exit()
                return task

            agl_go.serve(handle)
            """,
            "emit", "async", 1,
        )  # fmt: skip
        self.assertEqual(replies, [{"attempt_id": "at-0"}, {"attempt_id": "at-1"}, {"attempt_id": "at-2", "reward": 1.0}], done.stderr)
        self.assertEqual(json.loads(self.result(0).read_text()), {"reward": 0.5})
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_fork_that_leaves_the_handler_does_no_tasks(self) -> None:
        replies, done = self.kept(
            """
            import os, sys
            import agl_go

            def handle(task):
                child = os.fork()
                if child == 0:
                    print("child of", task)
                    if task == "exit":
                        sys.exit(0)
                    if task == "raise":
                        raise ValueError("it is the child's")
                    return 0.1
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

            agl_go.serve(handle)
            """,
            "exit", "raise", "return",
        )  # fmt: skip
        self.assertEqual(replies, [{"attempt_id": f"at-{n}", "reward": float(status)} for n, status in enumerate((0, 1, 0))], done.stderr)
        for task in ("exit", "raise", "return"):
            self.assertEqual(done.stderr.count(f"child of {task}"), 1, done.stderr)

    def test_a_fork_does_not_write_the_result_of_its_parent(self) -> None:
        replies, done = self.kept(
            """
            import os
            import agl_go

            def handle(task):
                agl_go.emit_reward(0.25)
                child = os.fork()
                if child == 0:
                    return 0.1
                os.waitpid(child, 0)

            agl_go.serve(handle)
            """,
            "one",
        )
        self.assertEqual((replies, json.loads(self.result(0).read_text())), ([{"attempt_id": "at-0"}], {"reward": 0.25}), done.stderr)

    def test_an_environment_that_is_cleared(self) -> None:
        replies, done = self.kept(
            """
            import os
            import agl_go

            def handle(task):
                agl_go.emit_reward(0.25)
                os.environ.clear()
                return 0.5

            agl_go.serve(handle)
            """,
            "one",
        )
        self.assertEqual((replies, json.loads(self.result(0).read_text())), ([{"attempt_id": "at-0"}], {"reward": 0.5}), done.stderr)

    def test_one_task_without_keepalive(self) -> None:
        program = "import agl_go; agl_go.serve(lambda task: print('hi') or 1 / task)"
        done = self.run_agent(program, [], **self.line(0, 4)["env"])
        self.assertEqual((done.returncode, done.stdout), (0, "hi\n"), done.stderr)
        self.assertEqual(json.loads(self.result(0).read_text()), {"reward": 0.25})
        done = self.run_agent(program, [], **self.line(1, 0)["env"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("ZeroDivisionError", done.stderr)
        self.assertFalse(self.result(1).exists())


if __name__ == "__main__":
    unittest.main()
