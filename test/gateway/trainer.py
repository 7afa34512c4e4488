"""The package's rollout managers, its local controller and an agent, against both servers.

Only verl itself is missing: the scripts call the managers as its trainer does."""

import subprocess

from agentlightning.hooks import RolloutHooks
from agentlightning.schemas import TERMINAL_STATES
from agentlightning.verl.agl_rollout_manager import AglAsyncRolloutManager, AglRolloutManager

from servers import KEY, MODEL

TASKS = {
    "turns": [["a", "ab"], ["b"], ["same", "same"], ["image"], []],
    "reward": [1.0, 0.5, 0, -1, True],
    "crash": [False, False, False, False, True],
}


class Hooks(RolloutHooks):
    def on_enqueue(self, request):
        request.metadata = {"batch_idx": 7, "note": "n"}
        return request

    def on_succeeded(self, rollout, events, store) -> None:
        for attempt, _ in events.items():
            store.add_event(rollout.rollout_id, attempt, "checked", {"ok": True})

    def on_failed(self, rollout, store) -> None:
        store.add_event(rollout.rollout_id, rollout.status.last_attempt_id or "unknown", "checked", {"ok": False})


def controller(server) -> subprocess.Popen:
    return subprocess.Popen(
        ["agl-controller", "runner_type=local", f"agl_server.url={server.url}", f"agl_server.key={KEY}", "local_runner.poll_interval=0.2", "local_runner.maximum_size=4"],
        stdout=server.log, stderr=server.log, cwd=server.folder.name,
    )


def manager(server, kind=AglRolloutManager, **more):
    return kind(agl_base_url=server.url, agl_key=KEY, model=MODEL, step=3, poll_interval_seconds=0.2,
                local_agent_class="agent:Agent", local_env_map={"TASK": "input"}, hooks=Hooks(), **more)


def shown(rollout) -> dict:
    """What training uses of a rollout, without times and ids."""
    events = [(e["event_type"], e["attempt_id"], e["data"].get("http_status")) for e in rollout.events]
    return {
        "input": rollout.input, "reward": rollout.final_reward, "state": rollout.rollout_state, "error": rollout.error_message,
        "metadata": rollout.metadata, "triplets": [t.model_dump() for t in rollout.triplets], "events": events,
        "times": rollout.running_at is not None and rollout.running_at <= rollout.finished_at,
    }


def run(server, engine) -> list:
    out = []
    process = controller(server)
    try:
        m = manager(server, train_rollout_n=2)
        m.delete_model()
        out.append(("register_model", [x.model for x in m.register_model([engine.url.removeprefix("http://").removesuffix("/v1")])]))
        done = m.enqueue_and_wait_until_completed(TASKS, is_train=True)
        out.append(("enqueue_and_wait_until_completed", sorted((shown(r) for r in done), key=repr)))
        left = [server.client().get(f"/api/rollouts/{r.rollout_id}").status_code for r in done]
        out.append(("deleted", left))
        m = manager(server)
        done = m.enqueue_and_wait_until_completed({k: v[:2] for k, v in TASKS.items()}, is_train=False)
        out.append(("validation", sorted((shown(r) for r in done), key=repr)))
        out += groups(server)
    finally:
        process.terminate()
        process.wait(timeout=30)
    return out


def checked_once(seen: dict) -> dict:
    """Hooks see a rollout in both calls if it ended before its group did."""
    events = seen["events"]
    return {**seen, "events": [e for i, e in enumerate(events) if e[0] != "checked" or e not in events[:i]]}


def groups(server) -> list:
    """The asynchronous manager: two of three groups, then the pause and the drain, then the rest."""
    m = manager(server, AglAsyncRolloutManager, train_rollout_n=2)
    tasks = {k: v[:3] for k, v in TASKS.items()}
    done, carry = m.enqueue_and_wait_until_group_completed(tasks, [], is_train=True, target_finished_group_num=2)
    paused = server.client().post("/proxy/pause", json={"reason": "rollout_done step=3"}).json()
    while server.client().get("/proxy/state").json()["inflight"]:
        pass
    resumed = server.client().post("/proxy/resume").json()
    rest, none = m.enqueue_and_wait_until_group_completed({k: [] for k in tasks}, carry, is_train=True, target_finished_group_num=1)
    everything = sorted((checked_once(shown(r)) for r in done + rest), key=repr)
    counts = [len(done), len(carry), len(rest), len(none)]
    terminal = server.client().get("/api/rollouts/terminal").json()
    states = [server.client().get(f"/api/rollouts/{r.rollout_id}").status_code for r in rest]
    ended = all(r.rollout_state in TERMINAL_STATES for r in done)
    return [("groups", everything), ("counts", counts), ("paused", paused["paused"]), ("resumed", resumed["paused"]), ("ended", ended),
            ("gone", states), ("terminal", (terminal["items"], terminal["total_terminal"]))]
