"""Requests of every kind, valid and not, to both servers: the answers must be equal but for times and generated ids."""

import json
import re

import httpx

from servers import KEY, MODEL

JSON = {"content-type": "application/json"}

# Each difference is described in docs/from-agent-lightning-v1.md. The keys are requests; the values are what both answer.
DIFFERENT = {
    "POST /api/rollouts {": (
        (422, {"detail": [{"type": "json_invalid", "loc": ["body", 0], "msg": "JSON decode error", "input": {}, "ctx": {"error": "not a JSON document in UTF-8"}}]}),
        (422, {"detail": [{"type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error", "input": {}, "ctx": {"error": "Expecting property name enclosed in double quotes"}}]}),
    ),
    "PUT /api/rollouts/aa {} allow": ("DELETE, GET, PATCH", "GET"),
    "event 1e400": ({"x": float("inf")}, {"x": None}),
    "metadata batch_idx": (
        (422, [{"type": "int_parsing", "loc": ["body", 1, "metadata", "batch_idx"], "msg": "Input should be a valid integer, unable to parse string as an integer", "input": "q"}], 404),
        (500, None, 200),
    ),
    "surrogate": (200, 500),
    "docs": (404, 200),
    "GET /nope ": ((404, "404: the page has no such file; its views are at /#/\n"), (404, {"detail": "Not Found"})),
    "reserved": (422, 201),
    "log of a deleted rollout": ([], [{"rollout_id": "log", "state": "queuing", "data_id": "", "is_train": True}]),
    "odd ids": ([422, 422, 422, 422], [201, 201, 201, 201]),
    "not UTF-8": ([422, 400], [400, 500]),
    "slashes": ([307, 200, 200], [404, 404, 404]),
}


def settled(value):
    """Replaces times and generated ids."""
    if isinstance(value, dict):
        return {k: settled(v) for k, v in value.items()}
    if isinstance(value, list):
        return [settled(v) for v in value]
    if isinstance(value, float) and value > 1e9 and value != float("inf"):
        return "TIME"
    if isinstance(value, str):
        return re.sub(r"\b[0-9a-f]{32}\b", "ID", value)
    return value


def run(server, engine) -> list:
    client = server.client()
    client.headers["connection"] = "close"  # agl-server closes it after each 500, without saying so
    out = []

    def ask(method: str, path: str, body=None, **kwargs):
        content = body if isinstance(body, (str, type(None))) else json.dumps(body)
        response = client.request(method, path, content=content, headers=kwargs.get("headers", JSON))
        try:
            answer = settled(response.json())
        except ValueError:
            answer = response.text
        out.append((f"{method} {path} {'' if content is None else content}", (response.status_code, answer)))
        return response

    def rollout(rollout_id: str) -> str:
        return f"/api/rollouts/{rollout_id}"

    ask("GET", "/healthz")
    for body in (None, "{", "[]", {}, [{}], [3], [{"input": None, "rollout_id": "bb", "metadata": None}], [{"input": 5, "rollout_id": "bb"}]):
        ask("POST", "/api/rollouts", body)
    ask("POST", "/api/rollouts", "[]", headers={})
    wrong = {"timeout_seconds": "a", "local": {"agent_class": 3, "env_map": {"a": 1}}, "k8s": {"job_template": 1}}
    ask("POST", "/api/rollouts", [{"input": 1, "is_train": "x", "rollout_id": 5, "config": wrong}])
    ask("POST", "/api/rollouts", [{"input": 1, "is_train": None, "config": 3, "metadata": 4}])
    ask("POST", "/api/rollouts", [{"input": 1, "config": {"timeout_seconds": 1.5}}, {"input": 1, "is_train": 2}])
    config = {"timeout_seconds": "12", "extra": 1, "local": {"agent_class": "a:B", "env_map": {"X": "input.a"}}}
    ask("POST", "/api/rollouts", [{"input": {"data_id": "d", "n": 1.0}, "is_train": "yes", "rollout_id": "aa", "config": config,
                                   "metadata": {"batch_idx": "3", "x": [1, 2.5]}, "extra": 1}, {"input": "é", "rollout_id": "", "is_train": False}])
    ask("POST", "/api/rollouts", '[{"input":{"b":NaN,"c":"\\u00e9","d":12345678901234567890123},"rollout_id":"nan"}]')
    ask("POST", "/api/rollouts", [{"input": 1, "rollout_id": 'q"\\\0é ', "metadata": {'a":1,"b': '"', "\0é\\": {}}}])
    for query in ("", "?state_in=x&limit=a", "?state_in=queuing&limit=-1", "?state_in=queuing&limit=0", "?state_in=queuing&limit=2", "?state_in=running&state_in=queuing"):
        ask("GET", "/api/rollouts" + query)
    for query in ("?after=x", "?limit=0", "?after=-3&limit=-1", ""):
        ask("GET", "/api/rollouts/terminal" + query)
    for status in (3, None, {}, {"state": None}, {"state": "succeeded"}, {"cancel_requested": True, "state": "cancelled", "k8s_job_name": 3},
                   {"error_message": "m", "k8s_job_name": "j"}, {"error_message": None}, {"state": "running", "last_attempt_id": "0"}, {"state": "running"},
                   {"state": "queuing"}, {"state": "failed", "error_message": "no"}, {"state": "succeeded"}, {"last_attempt_id": "7"}):
        ask("PATCH", rollout("aa"), {"status": status})
        ask("GET", rollout("aa"))
    for body in ([], {}, {"other": 1}):
        ask("PATCH", rollout("nope"), body)
    ask("GET", rollout("nope"))
    events = rollout("aa") + "/attempt/%s/events"
    for body in ({}, {"event_type": 3, "data": []}, {"event_type": "reward", "data": None}, {"event_type": "reward"}, {"event_type": "x", "data": {"v": float("nan"), "w": 1.0}}):
        ask("POST", events % "0", body)
        ask("POST", events % "7", body)
    ask("POST", rollout("nope") + "/attempt/0/events", {"event_type": "x"})
    for prompt in (None, [], [[1]], ["1"], [True], [1.0], "bad", {"t": 1}, [1, 2], [1, 2], [3]):
        for reply in ([10], [20]):
            ask("POST", events % "7", {"event_type": "model_request", "data": {"response": {"prompt_token_ids": prompt, "choices": [{"token_ids": reply}]}, "server": {"model": MODEL, "version": 3}}})
    for logprobs in ({"content": [{"logprob": -1}, {"logprob": -2.5}]}, {"content": [{"logprob": None}]}, {"content": [{}]}, {"token_logprobs": ["-1.5", True, 2]}, {}, None, 3):
        ask("POST", events % "7", {"event_type": "model_request", "data": {"response": {"choices": [{"token_ids": [1], "logprobs": logprobs}]}, "http_status": 200}})
    for experts, prompt in (([1], [8, 8]), ([2], [8, 8, 9, 5]), (None, [8, 8, 9, 5, 1]), ([3], [7])):
        ask("POST", events % "7", {"event_type": "model_request", "data": {"routed_experts": experts, "response": {"prompt_token_ids": prompt, "choices": [{"token_ids": [9]}]}}})
    ask("POST", events % "7", {"event_type": "model_request", "data": {"response": [{"prompt_token_ids": [5]}, {"choices": [{"token_ids": [6]}]}, {"choices": []}]}})
    ask("POST", events % "7", {"event_type": "reward", "data": {"value": True, "reason": "r", "more": 1}})
    for query in ("", "?event_type=reward", "?format=triplet", "?format=triplet&event_type=model_request", "?include_routed_experts=no", "?include_routed_experts=zz", "?format=triplet&include_routed_experts=0"):
        ask("GET", rollout("aa") + "/events" + query)
    ask("GET", rollout("aa"))
    for state in ("running", "succeeded"):
        ask("PATCH", rollout("bb"), {"status": {"state": state}})
    ask("PATCH", rollout("nan"), {"status": {"state": "failed"}})
    for query in ("", "?after=1", "?after=1&limit=1", "?after=9"):
        ask("GET", "/api/rollouts/terminal" + query)
    ask("DELETE", rollout("bb"))
    ask("DELETE", rollout("bb"))
    ask("GET", rollout("bb") + "/events")
    ask("GET", "/api/rollouts/terminal?after=0&limit=2")
    ask("POST", "/api/rollouts", [{"input": "again", "rollout_id": "bb"}])
    ask("GET", rollout("bb"))
    ask("GET", "/api/rollouts?state_in=failed&state_in=queuing")
    for body in ([{"model": 1, "endpoint": 2, "version": "x"}, {}], {"model": "m"}, [{"model": "m", "endpoint": "http://e", "version": "3", "x": 1}], []):
        ask("POST", "/api/models", body)
    ask("DELETE", "/api/models")
    for body in (None, {}, {"retry_after_seconds": "x", "reason": 3}, {"retry_after_seconds": 9, "reason": "scale-down"}):
        ask("POST", "/proxy/pause", body)
        ask("GET", "/proxy/state")
    ask("POST", "/proxy/resume")
    for path in ("/nope", "/api/rollouts/", "/proxy"):
        ask("GET", path)
    response = ask("PUT", rollout("aa"), {})
    out.append(("PUT /api/rollouts/aa {} allow", response.headers["allow"]))
    for key in ("", " wrong", KEY):
        response = client.post("/api/rollouts", content="[]", headers={"authorization": f"Bearer{key}"} | JSON)
        out.append((f"key {key!r}", (response.status_code, response.json())))
    out.append(("x-api-key", client.post("/api/rollouts", content="[]", headers={"authorization": "Bearer x", "x-api-key": KEY} | JSON).status_code))
    deviations(client, out)
    return out


def deviations(client, out: list) -> None:
    """What our server does differently on purpose."""
    client.post("/api/rollouts/aa/attempt/inf/events", content='{"event_type":"inf","data":{"x":1e400}}', headers=JSON)
    client.patch("/api/rollouts/aa", json={"status": {"last_attempt_id": "inf"}})
    out.append(("event 1e400", client.get("/api/rollouts/aa/events").json()[0]["data"]))
    response = client.post("/api/rollouts", json=[{"input": 1, "rollout_id": "before"}, {"input": 1, "metadata": {"batch_idx": "q"}}])
    detail = response.json()["detail"] if response.status_code == 422 else None
    out.append(("metadata batch_idx", (response.status_code, detail, client.get("/api/rollouts/before").status_code)))
    out.append(("reserved", client.post("/api/rollouts", json=[{"input": 1, "metadata": {"agl.gateway": 1}}]).status_code))
    client.post("/api/rollouts", json=[{"input": 1, "rollout_id": "log"}])
    client.patch("/api/rollouts/log", json={"status": {"state": "failed"}})
    client.delete("/api/rollouts/log")
    client.post("/api/rollouts", json=[{"input": 1, "rollout_id": "log"}])
    out.append(("log of a deleted rollout", client.get("/api/rollouts/terminal?after=3").json()["items"]))
    out.append(("odd ids", [client.post("/api/rollouts", json=[{"input": 1, "rollout_id": i}]).status_code for i in (".", "..", "terminal", "x" * 1025)]))
    bad = b'{"a":"\xff"}'
    out.append(("not UTF-8", [client.post(path, content=bad, headers=JSON).status_code for path in ("/api/models", "/proxy/rollout/log/attempt/0/mode/val/openai/v1/completions")]))
    client.post("/api/rollouts", json=[{"input": 1, "rollout_id": "a/b"}])
    slashes = ("//api/models", "/api/rollouts/a%2Fb", "/api/rollouts/a%2Fb/events")
    out.append(("slashes", [client.get(httpx.URL(str(client.base_url).rstrip("/") + path)).status_code for path in slashes]))
    out.append(("docs", client.get("/docs").status_code))
    client.post("/api/rollouts", content='[{"input":"\\ud800","is_train":false}]', headers=JSON)
    out.append(("surrogate", client.get("/api/rollouts?state_in=queuing").status_code))
