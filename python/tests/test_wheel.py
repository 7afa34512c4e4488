"""The wheel: built, installed into an environment of its own, and used for real: store, runner and agents."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import urllib.request
import venv
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Optional

PROJECT = Path(__file__).resolve().parent.parent
TIMEOUT = 60
"""Seconds after which a program that should have ended counts as hanging."""

folder: "tempfile.TemporaryDirectory[str]"
wheel: Path
installed: Path
"""The bin folder of the environment that has the wheel."""


def build(kind: str, project: Path, into: Path, environment: Optional[dict[str, str]] = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(into), str(project)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def setUpModule() -> None:
    global folder, wheel, installed
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    root = Path(folder.name)
    done = build("wheel", PROJECT, root)
    assert done.returncode == 0, done.stdout
    [wheel] = root.glob("*.whl")
    venv.create(root / "venv", with_pip=False)
    installed = root / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(installed / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel)], check=True)


def outside(**more: str) -> dict[str, str]:
    """An environment that knows nothing of the project."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("AGL_", "PYTHON"))}, **more}


def run(*command: "str | Path") -> str:
    """Runs a program to its end and returns what it prints."""
    done = subprocess.run([str(c) for c in command], env=outside(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with exit status {done.returncode}:\n{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    def test_it_is_for_this_platform_and_complete(self) -> None:
        self.assertRegex(wheel.name, r"^agl_go-[^-]+-py3-none-(manylinux|macosx|win)_")
        with zipfile.ZipFile(wheel) as z:
            self.assertIn("agl_go/py.typed", z.namelist())
            [program] = [n for n in z.namelist() if re.search(r"\.data/scripts/agl-go(\.exe)?$", n)]
            self.assertFalse([n for n in z.namelist() if "entry_points" in n or re.search(r"/scripts/agl$", n)], "agl is another's name")
            if platform.system() == "Linux":
                self.assertNotIn(b"/ld-linux", z.read(program)[:4096], "the program is static")

    def test_the_program(self) -> None:
        for command in ([installed / "agl-go"], [installed / "python", "-m", "agl_go"]):
            with self.subTest(str(command)):
                self.assertRegex(run(*command, "version"), r"^agl \S+\ncommit \S+\ndate   \S+\ngo1\.\d+")
                failed = subprocess.run([*command, "no-such-command"], env=outside(), stderr=subprocess.PIPE, text=True)
                self.assertNotEqual(failed.returncode, 0)
                self.assertIn("agl", failed.stderr)

    def test_examples_name_the_program(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run(installed / "agl-go", "init", folder)
            for name in ("README.md", "agl.yaml"):
                text = (Path(folder) / name).read_text()
                self.assertIn("agl-go train agl.yaml", text)
                self.assertNotRegex(text, r"\bagl (train|config)\b")

    def test_the_program_takes_the_place_of_python(self) -> None:
        """Signals and standard input reach it, since there is no process before it."""
        with subprocess.Popen([installed / "python", "-m", "agl_go", "store", "--db", "memory:", "--port", "0"], env=outside(), stderr=subprocess.PIPE, text=True) as store:
            assert store.stderr is not None
            self.assertTrue(any("listens" in line for line in store.stderr), "it ended at once")
            if platform.system() == "Linux":
                self.assertEqual(Path(f"/proc/{store.pid}/exe").resolve().name, "agl-go")
            store.terminate()
            store.stderr.read()
        self.assertEqual(store.returncode, 0)

    def test_installed_into_a_folder(self) -> None:
        with tempfile.TemporaryDirectory() as target:
            subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-index", "--target", target, str(wheel)], check=True)
            done = subprocess.run([sys.executable, "-m", "agl_go", "version"], env=outside(PYTHONPATH=target), check=True, stdout=subprocess.PIPE, text=True)
            self.assertIn("agl ", done.stdout)

    def test_without_the_program(self) -> None:
        with tempfile.TemporaryDirectory() as target:
            shutil.copytree(PROJECT / "src" / "agl_go", Path(target, "agl_go"))
            bare = subprocess.run([sys.executable, "-m", "agl_go"], env=outside(PYTHONPATH=target), stderr=subprocess.PIPE, text=True)
            self.assertEqual(bare.returncode, 1)
            self.assertRegex(bare.stderr, r"^agl_go: agl-go is not in .*: install the wheel")


class SourceDistribution(unittest.TestCase):
    def test_it_holds_the_module_and_needs_go(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            here = Path(name)
            done = build("sdist", PROJECT, here)
            self.assertEqual(done.returncode, 0, done.stdout)
            [archive] = here.glob("*.tar.gz")
            with tarfile.open(archive) as t:
                t.extractall(here, filter="data")
            project = here / archive.name[: -len(".tar.gz")]
            # Every package of the program is there, for the platforms that are not this one, too.
            for system in ("linux", "darwin", "windows"):
                vet = ["go", "list", "-deps", "./cmd/agl"]
                subprocess.run(vet, cwd=project / "go", env={**os.environ, "GOOS": system, "CGO_ENABLED": "0"}, check=True, stdout=subprocess.DEVNULL)
            self.assertFalse(list(project.rglob("*_test.go")))

            refused = build("wheel", project, here, {**os.environ, "PATH": os.path.dirname(sys.executable)})
            self.assertNotEqual(refused.returncode, 0)
            self.assertRegex(refused.stdout, r"agl-go: building it from source needs Go [0-9.]+ or later, and there is no go in PATH: install Go")

    def test_a_platform_without_wheels(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            refused = build("wheel", PROJECT, Path(name), {**os.environ, "GOOS": "plan9", "GOARCH": "amd64"})
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn("agl-go: there is no wheel platform for GOOS=plan9 GOARCH=amd64, must be one of", refused.stdout)


AGENT = """
import json
import urllib.request
import agl_go

def handle(task):
    print("hello from", agl_go.rollout().rollout_id, flush=True)
    if task["n"] < 0:
        raise ValueError("n is negative")
    llm = agl_go.llm()
    content = agl_go.prompt("system").format(**task)
    body = {"model": llm.model, "messages": [{"role": "user", "content": content}], **llm.sampling_parameters}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {llm.api_key}"}
    request = urllib.request.Request(f"{llm.base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        content = json.load(reply)["choices"][0]["message"]["content"]
    return {"sum": float(content), "mode": agl_go.rollout().mode == "train"}

agl_go.serve(handle)
"""


class Model(BaseHTTPRequestHandler):
    """A model that adds the numbers of its prompt, and the temperature."""

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        numbers = re.findall(r"[0-9]+", question["messages"][-1]["content"])
        answer = str(sum(map(int, numbers)) + question["temperature"])
        choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": question["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Runs(unittest.TestCase):
    """Agents that a runner starts, with a store and a proxy: all of them from the wheel."""

    def setUp(self) -> None:
        created = tempfile.TemporaryDirectory()
        self.addCleanup(created.cleanup)
        self.folder = Path(created.name)
        self.agl = installed / "agl-go"
        self.store = self.start("store", "--db", "memory:")
        model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
        self.addCleanup(model.server_close)
        threading.Thread(target=model.serve_forever).start()
        self.addCleanup(model.shutdown)
        self.proxy = self.start("proxy", "--store", self.store, "--model", f"adder=http://127.0.0.1:{model.server_port}/v1")

    def start(self, *command: str) -> str:
        """Starts a server and returns its URL."""
        server = subprocess.Popen([self.agl, *command, "--port", "0", "--log-format", "json"], env=outside(), stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        url: str = next(e["url"] for e in map(json.loads, server.stderr) if e["msg"].endswith(" listens"))
        return url

    def call(self, path: str, body: Optional[Any] = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.store}/v1/agl{path}", data, {"Content-Type": "application/json"})) as r:
            return json.load(r)

    def test_an_agent(self) -> None:
        agent = self.folder / "agent.py"
        agent.write_text(AGENT)
        resources = {
            "system": {"resource_type": "prompt_template", "template": "Add {n} and 40.", "engine": "f-string"},
            "main": {"resource_type": "proxy_llm", "endpoint": f"{self.proxy}/v1", "model": "adder", "sampling_parameters": {"temperature": 0.5}},
        }
        self.call("/resources", resources)
        for keepalive in ("none", "stdio"):
            with self.subTest(keepalive):
                inputs = [1, 2, -1, 3]
                made = self.call("/queues/rollouts/enqueue", {"rollouts": [{"input": {"n": n}, "mode": "train"} for n in inputs]})
                run(
                    self.agl, "runner", "--store", self.store, "--concurrency", "2", "--keepalive", keepalive, "--max-rollouts", str(len(inputs)),
                    "--", installed / "python", agent,
                )  # fmt: skip
                for n, rollout in zip(inputs, made):
                    latest = self.call(f"/rollouts/{rollout['rollout_id']}/attempts/latest")
                    self.assertEqual(latest["status"], "failed" if n < 0 else "succeeded", latest)
                    if n < 0:
                        self.assertIn("ValueError: n is negative", json.dumps(latest["metadata"]))
                    self.assertEqual(self.rewards(rollout["rollout_id"]), {} if n < 0 else {"sum": n + 40.5, "mode": 1.0})

    def rewards(self, rollout_id: str) -> dict[str, float]:
        found = {}
        for span in self.call(f"/spans?rollout_id={rollout_id}")["items"]:
            attributes = span["attributes"]
            for i in range(2):
                name = attributes.get(f"agentlightning.reward.{i}.name")
                if name is not None:
                    found[name] = attributes[f"agentlightning.reward.{i}.value"]
        return found


if __name__ == "__main__":
    unittest.main()
