"""Our server is killed with SIGKILL between requests and their answers, again and again, while clients of the package repeat
what was not answered: no rollout is there twice, none is lost, and neither is an event."""

import random
import signal
import sys
import threading
import uuid

import httpx
from agentlightning.client import AgentLightningSyncClient

import trainer
from servers import KEY, MODEL, Engine, Ours

CLIENTS, ROUNDS, BATCH, KILLS = 8, 16, 8, 12


class Work:
    """One client: creates rollouts, ends them, and posts events, until each was acknowledged."""

    def __init__(self, server, number: int) -> None:
        self.client = AgentLightningSyncClient(key=KEY, base_url=server.url, timeout=30)
        self.number, self.rounds, self.inputs, self.events, self.wrong = number, 0, {}, {}, []

    def state(self, rollout: str) -> str:
        while True:
            try:
                answer = self.client.get(f"/api/rollouts/{rollout}")
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                return answer.json()["rollout"]["status"]["state"]

    def patch(self, rollout: str, state: str) -> None:
        """What a controller does: it looks again at the next poll, and repeats what is not done."""
        while True:
            try:
                answer = self.client.patch(f"/api/rollouts/{rollout}", json={"status": {"state": state}})
            except httpx.HTTPError:
                if self.state(rollout) == state:
                    return
                continue
            if answer.status_code == 503:
                continue
            if answer.status_code != 200 and not (answer.status_code == 409 and f"{state} -> {state}" in answer.text):
                self.wrong.append(f"PATCH {rollout} {state}: {answer.status_code} {answer.text}")
            return

    def post(self, path: str, body: dict, mark: str, rollout: str) -> None:
        while True:
            try:
                answer = self.client.post(path, json=body)
            except httpx.HTTPError:
                continue
            if answer.status_code == 200:
                self.events.setdefault(rollout, []).append(mark)
                return
            if answer.status_code != 503:
                self.wrong.append(f"POST {path}: {answer.status_code} {answer.text}")
                return

    def run(self, enough: threading.Event) -> None:
        while self.rounds < ROUNDS or not enough.is_set():
            n = self.rounds
            self.rounds += 1
            batch = [{"input": f"{self.number}-{n}-{i}", "rollout_id": uuid.uuid4().hex} for i in range(BATCH)]
            made = self.client.post_with_retry("/api/rollouts", json=batch).json()
            if [m["rollout_id"] for m in made] != [b["rollout_id"] for b in batch]:
                self.wrong.append(f"POST /api/rollouts answers other rollouts: {made}")
            for b in batch:
                rollout = b["rollout_id"]
                self.inputs[rollout] = b["input"]
                self.patch(rollout, "running")
                mark = uuid.uuid4().hex
                self.post(f"/proxy/rollout/{rollout}/attempt/0/mode/train/openai/v1/chat/completions", {"messages": [{"role": "user", "content": mark}]}, mark, rollout)
                mark = uuid.uuid4().hex
                self.post(f"/api/rollouts/{rollout}/attempt/0/events", {"event_type": "note", "data": {"mark": mark}}, mark, rollout)
                self.patch(rollout, "succeeded")


def marks(event: dict) -> str:
    return event["data"].get("mark") or event["data"]["request"]["messages"][0]["content"]


def killing(server, random_: random.Random, over: threading.Event, enough: threading.Event) -> int:
    """Kills the server at random moments until the work is done. After KILLS times it is enough."""
    kills = 0
    while not over.wait(random_.uniform(0.05, 0.6)):
        server.end(signal.SIGKILL)
        kills += 1
        server.start()
        if kills == KILLS:
            enough.set()
    return kills


def run() -> list[str]:
    return loops() + training()


def loops() -> list[str]:
    server, engine = Ours(), Engine()
    try:
        server.start()
        server.client().post("/api/models", json=[{"model": MODEL, "endpoint": engine.url}])
        works = [Work(server, i) for i in range(CLIENTS)]
        over, enough = threading.Event(), threading.Event()
        threads = [threading.Thread(target=w.run, args=(enough,), daemon=True) for w in works]
        for t in threads:
            t.start()
        threading.Thread(target=lambda: ([t.join() for t in threads], over.set()), daemon=True).start()
        kills = killing(server, random.Random(1), over, enough)
        return check(server, works) + ([] if kills >= KILLS else [f"only {kills} kills: every client has failed"])
    finally:
        server.close()


def check(server, works: list[Work]) -> list[str]:
    wrong = [x for w in works for x in w.wrong]
    client = server.reader()
    inputs = {k: v for w in works for k, v in w.inputs.items()}
    if len(inputs) != (wanted := sum(w.rounds for w in works) * BATCH):
        wrong.append(f"{len(inputs)} rollouts were made, wanted {wanted}: a client has failed")
    stored = client.get("/api/rollouts?state_in=queuing&state_in=running&state_in=succeeded&state_in=failed&limit=100000").json()
    if sorted((r["rollout_id"], r["input"]) for r in stored) != sorted(inputs.items()):
        wrong.append(f"{len(stored)} rollouts are stored, {len(inputs)} were made, or their inputs differ")
    if [r for r in stored if r["status"]["state"] != "succeeded"]:
        wrong.append("not every rollout has succeeded")
    terminal = client.get("/api/rollouts/terminal?limit=100000").json()
    if sorted(i["rollout_id"] for i in terminal["items"]) != sorted(inputs) or terminal["total_terminal"] != len(inputs):
        wrong.append(f"the terminal log has {terminal['total_terminal']} entries, wanted each of {len(inputs)} rollouts once")
    lost = repeated = 0
    for w in works:
        for rollout, acknowledged in w.events.items():
            found = [marks(e) for e in client.get(f"/api/rollouts/{rollout}/events").json()]
            lost += len(set(acknowledged) - set(found))
            repeated += len(found) - len(set(found))
    if lost:
        wrong.append(f"{lost} acknowledged events are lost")
    print(f"kills: {len(inputs)} rollouts, {sum(len(e) for w in works for e in w.events.values())} events; {repeated} events are there again, because their answer was lost", file=sys.__stdout__)
    return wrong


def training() -> list[str]:
    """A whole step of training, with the package's controller and rollout manager."""
    server, engine = Ours(), Engine()
    process = None
    try:
        server.start()
        process = trainer.controller(server)
        m = trainer.manager(server)
        m.register_model([engine.url])
        tasks = {"turns": [[f"{i}-1", f"{i}-22"] for i in range(12)], "reward": [i + 0.5 for i in range(12)], "crash": [False] * 12}
        over, done = threading.Event(), []
        errors: list[Exception] = []

        def work() -> None:
            try:
                done.extend(m.enqueue_and_wait_until_completed(tasks, is_train=True))
            except Exception as e:
                errors.append(e)
            finally:
                over.set()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        kills = killing(server, random.Random(2), over, threading.Event())
        thread.join()
        if errors:
            return [f"the trainer has failed after {kills} kills: {errors[0]!r}"]
        wrong = [f"rollout {r.input}: {r.rollout_state} {r.error_message}" for r in done if r.rollout_state != "succeeded"]
        if sorted(r.final_reward for r in done) != tasks["reward"]:
            wrong.append(f"rewards: {[r.final_reward for r in done]}")
        wrong += [f"rollout {r.input}: {len(r.triplets)} triplets" for r in done if len(r.triplets) != 2]
        print(f"kills: a step of training with {len(done)} rollouts and {kills} kills", file=sys.__stdout__)
        return wrong + ([] if kills else ["the server was never killed"])
    finally:
        if process:
            process.terminate()
            process.wait(timeout=30)
        server.close()
