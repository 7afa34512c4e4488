"""The protocol below the Python client: each route as plain HTTP on both servers, forms, bad requests and look-alikes."""

from __future__ import annotations

from typing import Any

from differential import ANY, DifferentialTest, Ours, Side
from test_rollouts import REFUSED
from test_spans import rich, span

V1 = "/v1/agl"
FAULT = {"status": (500, 400), "body/detail": ("Internal server error", ANY), "body/traceback": (ANY, "<absent>")}


def refused(error_type: str = "ValueError", ours: str = "ValueError", **more: Any) -> Ours:
    """500 with a traceback there, 400 with a message here."""
    return Ours(REFUSED, {**FAULT, "body/error_type": (error_type, ours), "body/code": ("<absent>", ANY)})


def place(problem: Any) -> Any:
    """Where a request is wrong: the path of the first mistake, without the parser's position in it, or the message."""
    detail = problem.get("detail") if isinstance(problem, dict) else problem
    if isinstance(detail, list):
        first = detail[0]
        return first["loc"][:1] if first["type"] == "json_invalid" else first["loc"]
    return detail.split(", allowed fields are:")[0] if isinstance(detail, str) else problem


class Routes(DifferentialTest):
    async def test_every_route(self) -> None:
        async def script(s: Side) -> None:
            post, get = "POST", "GET"
            await s.raw(get, f"{V1}/health")
            await s.raw(post, f"{V1}/queues/rollouts/enqueue", json={"rollouts": []})
            await s.raw(post, f"{V1}/queues/rollouts/enqueue", json={"rollouts": [{"input": {"b": 1.0, "a": 1}}, {"input": None, "mode": "val", "extra": 1}]})
            await s.raw(post, f"{V1}/queues/rollouts/dequeue", json={"limit": "1", "worker_id": "w"})
            await s.raw(post, f"{V1}/queues/rollouts/dequeue", what="dequeue without a body")
            await s.raw(post, f"{V1}/queues/rollouts/dequeue", what="dequeue with null", body=b"null", headers=JSON)
            await s.raw(post, f"{V1}/queues/rollouts/dequeue", json={"limit": 0})
            started = await s.raw(post, f"{V1}/rollouts", json={"input": "\U0001f600", "config": {"max_attempts": 2, "unknown": 1}, "worker_id": "w2"})
            rid, aid = started["rollout_id"], started["attempt"]["attempt_id"]
            at = lambda path: f"{V1}/rollouts/{rid}{path}"  # noqa: E731

            async def on(method: str, path: str, **options: Any) -> Any:
                return await s.raw(method, path, what=s.mask(f"{len(s.steps)}: {method} {path}"), **options)

            await on(get, f"{V1}/rollouts?status_in=queuing&status_in=preparing&limit=1&sort_by=start_time&sort_order=desc")
            await on(get, f"{V1}/rollouts?rollout_id_in={rid}&filter_logic=or")
            await on(get, f"{V1}/rollouts?rollout_id_contains=zzz")
            await on(post, f"{V1}/rollouts/search", json={})
            await on(post, f"{V1}/rollouts/search", json={"status_in": None, "limit": "1", "offset": 1.0})
            await on(get, at(""))
            await on(get, f"{V1}/rollouts/nobody", ours=NOBODY)
            await on(post, at(""), json={"metadata": None, "mode": "test", "colour": 1})
            await on(post, at(""), json={"status": None})
            await on(post, at("/attempts"))
            await on(post, at("/attempts"), json={"worker_id": "w3"})
            await on(get, at("/attempts?limit=2&sort_order=desc"))
            await on(post, at("/attempts/search"), json={"limit": 1, "sort_by": None})
            await on(get, at("/attempts/latest"))
            await on(get, f"{V1}/rollouts/nobody/attempts/latest")
            await on(post, at("/attempts/latest"), json={"status": "running"})
            await on(post, at(f"/attempts/{aid}"), json={"metadata": {"é": "\u2028"}, "last_heartbeat_time": 5})
            await on(post, at(f"/attempts/{aid}"), json={"worker_id": None})
            await on(get, f"{V1}/workers?status_in=busy&worker_id_contains=w")
            await on(post, f"{V1}/workers/search", json={"limit": 1, "offset": 1})
            await on(get, f"{V1}/workers/w2")
            await on(get, f"{V1}/workers/nobody")
            await on(post, f"{V1}/workers/w9")
            await on(post, f"{V1}/workers/w9", json={"heartbeat_stats": {"b": 1.0, "a": [1]}})
            await on(get, f"{V1}/resources/latest")
            await on(post, f"{V1}/resources", json={"l": {"resource_type": "llm", "endpoint": "e", "model": "m", "extra": 1}})
            await on(post, f"{V1}/resources/mine", json={"p": {"resource_type": "prompt_template", "template": "t", "engine": "jinja"}})
            await on(get, f"{V1}/resources/mine")
            await on(get, f"{V1}/resources/none")
            await on(get, f"{V1}/resources?resources_id=mine&limit=1")
            wrapped = type("R", (), {"rollout_id": rid, "attempt": type("A", (), {"attempt_id": aid})})
            await on(post, f"{V1}/spans", json=rich(wrapped, 3).model_dump(mode="json"))
            await on(post, f"{V1}/spans", json=rich(wrapped, 3).model_dump(mode="json"))
            await on(post, f"{V1}/spans", json={**span(wrapped, 4).model_dump(mode="json"), "sequence_id": "9", "start_time": 2, "end_time": "2.5"})
            await on(get, f"{V1}/spans?rollout_id={rid}&name_contains=pan&limit=1")
            await on(get, f"{V1}/spans?rollout_id={rid}&attempt_id={aid}&parent_id=00000000000000aa")
            await on(post, f"{V1}/spans/search", json={"rollout_id": rid, "sort_by": "name", "sort_order": "desc"})
            await on(post, f"{V1}/spans/next", json={"rollout_id": rid, "attempt_id": aid})
            await on(post, f"{V1}/waits/rollouts", json={"rollout_ids": [rid], "timeout": 0})
            await on(post, f"{V1}/waits/rollouts", json={"rollout_ids": []})

        await self.compare(script)

    async def test_bad_requests(self) -> None:
        """Ours names the first mistake only, and knows more about it in places; both name the same place first."""

        async def script(s: Side) -> None:
            async def bad(*args: Any, **options: Any) -> None:
                await s.raw(*args, view=place, **options)

            for path in ("/queues/rollouts/enqueue", "/rollouts", "/rollouts/search", "/workers/search", "/spans", "/spans/search", "/spans/next", "/waits/rollouts", "/resources", "/rollouts/x", "/rollouts/x/attempts/y", "/rollouts/x/attempts/search"):
                await bad("POST", V1 + path, what=f"{path} without a body")
                await bad("POST", V1 + path, json=None, body=b"null", headers=JSON, what=f"{path} null")
                await bad("POST", V1 + path, json=[], what=f"{path} a list")
                await bad("POST", V1 + path, body=b"{}", headers={"Content-Type": "text/plain"}, what=f"{path} as text")
                await bad("POST", V1 + path, body=b'{"a":', headers=JSON, what=f"{path} cut off")
            bodies: list[tuple[str, Any]] = [
                ("/queues/rollouts/enqueue", {"rollouts": [{"mode": "train"}]}),
                ("/queues/rollouts/enqueue", {"rollouts": [{"input": 1, "mode": "best", "config": {"max_attempts": 0}}]}),
                ("/queues/rollouts/enqueue", {"rollouts": [{"input": 1, "config": {"retry_condition": ["lost"]}, "metadata": []}]}),
                ("/queues/rollouts/dequeue", {"limit": 1.5}),
                ("/queues/rollouts/dequeue", {"limit": None}),
                ("/queues/rollouts/dequeue", {"worker_id": 1}),
                ("/rollouts", {"mode": "train"}),
                ("/rollouts", {"input": 1, "config": {"timeout_seconds": "soon"}}),
                ("/rollouts/search", {"status_in": ["lost"], "sort_order": "up", "filter_logic": "xor", "limit": "many"}),
                ("/rollouts/search", {"status_in": "queuing,running"}),
                ("/rollouts/search", {"sort_by": "attempt"}),
                ("/rollouts/search", {"limit": 0}),
                ("/rollouts/search", {"limit": -2}),
                ("/rollouts/search", {"offset": -1}),
                ("/rollouts/x", {"status": None}),
                ("/rollouts/x", {"config": None}),
                ("/rollouts/x", {"status": "lost"}),
                ("/rollouts/x/attempts/y", {"metadata": None}),
                ("/rollouts/x/attempts/y", {"status": "cancelled"}),
                ("/rollouts/x/attempts/search", {"sort_by": "colour"}),
                ("/workers/search", {"status_in": ["asleep"]}),
                ("/workers/w", {"heartbeat_stats": None}),
                ("/workers/w", {"heartbeat_stats": 1}),
                ("/resources", {"a": {"endpoint": "e", "model": "m"}}),
                ("/resources", {"a": 1}),
                ("/spans/search", {"limit": 1}),
                ("/spans/next", {"rollout_id": "x"}),
                ("/waits/rollouts", {"timeout": 0}),
                ("/waits/rollouts", {"rollout_ids": "x", "timeout": "soon"}),
            ]
            for path, body in bodies:
                await bad("POST", V1 + path, json=body, what=f"{path} {body}")
            for resource, ours in (
                ({"resource_type": "gpu"}, (["body", "a"], ["body", "a", "resource_type"])),
                ({"resource_type": "llm"}, (["body", "a", "llm", "endpoint"], ["body", "a", "endpoint"])),
                ({"resource_type": "prompt_template", "template": "t", "engine": "x"}, (["body", "a", "prompt_template", "engine"], ["body", "a", "engine"])),
            ):
                await bad("POST", f"{V1}/resources", json={"a": resource}, what=f"resource {resource}", ours=Ours("paths hold the keys of the document only", {"body": ours}))
            wrapped = type("R", (), {"rollout_id": "x", "attempt": type("A", (), {"attempt_id": "y"})})
            good = span(wrapped, 1).model_dump(mode="json")
            for change in ({"sequence_id": 1.5}, {"name": None}, {"status": {"status_code": "GOOD"}}, {"events": [{}]}, {"links": [{"context": {}}]}, {"resource": None}, {"start_time": "now"}):
                await bad("POST", f"{V1}/spans", json={**good, **change}, what=f"span with {change}")
            for key in sorted(good):
                await bad("POST", f"{V1}/spans", json={k: v for k, v in good.items() if k != key}, what=f"span without {key}")
            for query in ("limit=0", "limit=x", "offset=-1", "sort_by=colour", "sort_order=up", "filter_logic=xor", "status_in=queuing,running", "status_in="):
                await bad("GET", f"{V1}/rollouts?{query}")
            await bad("GET", f"{V1}/spans")
            for method, path in (("PUT", "/rollouts"), ("DELETE", "/workers/w"), ("PATCH", "/spans"), ("POST", "/health")):
                await bad(method, V1 + path)
            await bad("GET", f"{V1}/nothing/here")

        await self.compare(script)

    async def test_refusals(self) -> None:
        async def script(s: Side) -> None:
            wrapped = type("R", (), {"rollout_id": "nobody", "attempt": type("A", (), {"attempt_id": "nothing"})})
            await s.raw("POST", f"{V1}/rollouts/nobody", json={"input": 1}, ours=refused())
            await s.raw("POST", f"{V1}/rollouts/nobody/attempts", ours=refused())
            await s.raw("POST", f"{V1}/rollouts/nobody/attempts/latest", json={"status": "failed"}, ours=refused())
            await s.raw("POST", f"{V1}/spans", json=span(wrapped, 1).model_dump(mode="json"), ours=refused())
            await s.raw("POST", f"{V1}/rollouts", json={"input": 1, "metadata": {"a": 1}})
            await s.raw("POST", f"{V1}/rollouts", json={"input": 2, "metadata": {"a": 2}}, what="another")
            await s.raw("GET", f"{V1}/rollouts?sort_by=metadata", ours=refused("TypeError"))
            await s.raw("POST", f"{V1}/rollouts", body=b'{"input":{"loss":[1,NaN]}}', headers=JSON, ours=NOT_FINITE)

        await self.compare(script)


JSON = {"Content-Type": "application/json"}
NOBODY = Ours("an unknown id is null", {"status": (500, 200), "body": (ANY, None)})
NOT_FINITE = Ours("what JSON cannot spell is refused and its place named", {"status": (201, 422), "body": (ANY, ANY)})
