"""Spans, sequence ids and OTLP: every operation of the Python client, on both servers."""

from __future__ import annotations

import gzip
from typing import Any

import aiohttp
import opentelemetry.trace as trace_api
from agentlightning.types import Event, Link, OtelResource, RolloutConfig, Span, SpanContext, TraceStatus
from agentlightning.utils.otlp import LightningStoreOTLPExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Status, StatusCode

from differential import ANY, DifferentialTest, Ours, Side
from programs import until
from test_rollouts import ENDED, OUTCOME, UNKNOWN


def span(rollout: Any, n: int, **fields: Any) -> Span:
    """The n-th span of an attempted rollout."""
    values: dict[str, Any] = {
        "rollout_id": rollout.rollout_id,
        "attempt_id": rollout.attempt.attempt_id,
        "sequence_id": n,
        "trace_id": f"{n:032x}",
        "span_id": f"{n:016x}",
        "parent_id": None,
        "name": f"span {n}",
        "status": TraceStatus(status_code="OK"),
        "attributes": {},
        "events": [],
        "links": [],
        "start_time": n + 0.5,
        "end_time": n + 0.75,
        "context": None,
        "parent": None,
        "resource": OtelResource(attributes={}, schema_url=""),
    }
    return Span(**{**values, **fields})


def rich(rollout: Any, n: int) -> Span:
    """A span with everything in it, unknown fields at every level included."""
    context = SpanContext(trace_id="f" * 32, span_id="e" * 16, is_remote=True, trace_state={"b": "2", "a": "1"}, flags=1)
    return span(
        rollout,
        n,
        parent_id="00000000000000aa",
        name="agentlightning.annotation",
        status=TraceStatus(status_code="ERROR", description="grüße \U0001f600", origin={"deep": [1, 2.0]}),
        attributes={
            "agentlightning.reward.0.name": "primary",
            "agentlightning.reward.0.value": 1.0,
            "integral": 3,
            "large": 2**53 + 1,
            "negative": -(2**63),
            "small": 1e-12,
            "yes": True,
            "text": "line\nbreak \u2028 </script> \x00",
            "ids": [1, 2, 3],
            "floats": [1.0, 2.5],
            "texts": ["a", "b"],
            "bools": [True, False],
            "empty": [],
            "": "empty key",
            "ünï.0": "",
        },
        events=[Event(name="e", attributes={"k": 1.0}, timestamp=1.5, dropped=2), Event(name="", attributes={})],
        links=[Link(context=context, attributes=None, kind="follows"), Link(context=context, attributes={"n": 1})],
        context=context,
        parent=context,
        resource=OtelResource(attributes={"service.name": "x", "n": 1}, schema_url="https://example.com/schema"),
        instrumentation_scope={"name": "lib", "version": None, "nested": {"list": [1, 2.0, None, {"k": True}]}},
        kind="INTERNAL",
        zebra=1,
        apple=2.0,
    )


class Spans(DifferentialTest):
    async def test_spans_come_back_as_they_were(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            await s.see("plain", s.store.add_span(span(r, 1)))
            await s.see("rich", s.store.add_span(rich(r, 2)))
            await s.see("no times", s.store.add_span(span(r, 3, start_time=None, end_time=None)))
            await s.see("free ids", s.store.add_span(span(r, 4, trace_id="trace/ä b", span_id="é?&=#", parent_id="")))
            await s.see("no sequence id to speak of", s.store.add_span(span(r, 0, span_id="zero")))
            await s.see("all", s.store.query_spans(r.rollout_id))
            await s.see("the rollout runs", s.store.get_rollout_by_id(r.rollout_id))

        await self.compare(script)

    async def test_duplicates_and_unknown_attempts(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            await s.see("first", s.store.add_span(span(r, 1)))
            await s.see("again", s.store.add_span(span(r, 1, name="another")))
            await s.see("many, the first known", s.store.add_many_spans([span(r, 1), span(r, 2), span(r, 2), span(r, 3)]))
            await s.see("none", s.store.add_many_spans([]))
            await s.see("unknown rollout", s.store.add_span(span(r, 9, rollout_id="nobody")), UNKNOWN)
            await s.see("unknown attempt", s.store.add_span(span(r, 9, attempt_id="at-nothing")), UNKNOWN)
            await s.see("next", s.store.get_next_span_sequence_id(r.rollout_id, r.attempt.attempt_id), SEQUENCE)
            await s.see("stored", s.store.query_spans(r.rollout_id))

        await self.compare(script)

    async def test_sequence_ids(self) -> None:
        async def script(s: Side) -> None:
            a, b = await s.store.start_rollout("a"), await s.store.start_rollout("b")
            ka, kb = (a.rollout_id, a.attempt.attempt_id), (b.rollout_id, b.attempt.attempt_id)
            await s.see("first", s.store.get_next_span_sequence_id(*ka))
            await s.see("second", s.store.get_next_span_sequence_id(*ka))
            await s.see("many", s.store.get_many_span_sequence_ids([ka, kb, ka, ka, kb]))
            await s.see("none", s.store.get_many_span_sequence_ids([]))
            await s.store.add_span(span(a, 40))
            await s.see("after one with its own", s.store.get_next_span_sequence_id(*ka))
            await s.store.add_span(span(a, 7))
            await s.see("a lower one changes nothing", s.store.get_next_span_sequence_id(*ka))
            second = await s.store.start_attempt(a.rollout_id)
            await s.see("attempts share the counter", s.store.get_next_span_sequence_id(a.rollout_id, second.attempt.attempt_id))
            await s.see("an attempt that is not there", s.store.get_next_span_sequence_id(a.rollout_id, "at-nothing"))
            await s.see("a rollout that is not there", s.store.get_next_span_sequence_id("ghost", "at-nothing"))

        await self.compare(script)

    async def test_queries(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            await s.store.add_many_spans(
                [
                    span(r, 3, name="alpha", parent_id="0000000000000001"),
                    span(r, 1, name="beta"),
                    span(r, 2, name="alphabet", parent_id="0000000000000001", trace_id="abc"),
                    span(r, 5, name="Alpha", start_time=None, end_time=None),
                    span(r, 4, name="", parent_id="0000000000000003"),
                ]
            )
            again = await s.store.start_attempt(r.rollout_id)
            await s.store.add_span(span(again, 6, name="alpha"))
            rid, aid = r.rollout_id, r.attempt.attempt_id
            query = s.store.query_spans
            await s.see("all", query(rid))
            await s.see("an attempt", query(rid, aid))
            await s.see("the latest attempt", query(rid, "latest"))
            await s.see("unknown attempt", query(rid, "at-nothing"))
            await s.see("unknown rollout", query("nobody"))
            await s.see("unknown rollout, latest", query("nobody", "latest"))
            await s.see("name", query(rid, name="alpha"))
            await s.see("part of a name", query(rid, name_contains="lpha"))
            await s.see("span", query(rid, span_id="0000000000000002"))
            await s.see("part of a span id", query(rid, span_id_contains="004"))
            await s.see("trace", query(rid, trace_id="abc"))
            await s.see("part of a trace id", query(rid, trace_id_contains="b"))
            await s.see("parent", query(rid, parent_id="0000000000000001"))
            await s.see("part of a parent id", query(rid, parent_id_contains="3"))
            await s.see("and", query(rid, name_contains="alpha", parent_id="0000000000000001", trace_id="abc"))
            await s.see("or", query(rid, name="beta", trace_id="abc", filter_logic="or"))
            await s.see("or, one attempt", query(rid, "latest", name="beta", trace_id_contains="0", filter_logic="or"))
            await s.see("or without filters", query(rid, filter_logic="or", limit=1), ALL_OF_NOTHING)
            await s.see("a page", query(rid, aid, limit=2, offset=1))
            await s.see("descending", query(rid, aid, sort_order="desc", limit=3))
            await s.see("by name", query(rid, aid, sort_by="name"))
            await s.see("by start, the unknown last", query(rid, aid, sort_by="start_time"))
            await s.see("by end, descending", query(rid, aid, sort_by="end_time", sort_order="desc"))
            await s.see("by parent", query(rid, aid, sort_by="parent_id"))
            await s.see("in the server's order", query(rid, aid, sort_by=None))
            await s.see("unknown field", query(rid, sort_by="colour"))
            await s.see("limit 0", query(rid, limit=0))
            await s.see("offset -1", query(rid, offset=-1))

        await self.compare(script)

    async def test_what_spans_do_to_a_rollout(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.enqueue_rollout(1)
            r = await s.store.dequeue_rollout(worker_id="w")
            await s.store.add_span(span(r, 1))
            await s.see("it runs", s.store.get_rollout_by_id(r.rollout_id))
            await s.see("its worker", s.store.get_worker_by_id("w"))
            await s.store.update_attempt(r.rollout_id, "latest", status="succeeded")
            await s.see("a late span", s.store.add_span(span(r, 2)))
            await s.see("changes nothing", s.store.get_rollout_by_id(r.rollout_id))
            again = await s.store.start_attempt(r.rollout_id)
            await s.store.add_span(span(r, 3))
            await s.see("nor does one of an old attempt", s.store.get_latest_attempt(r.rollout_id))
            await s.store.add_span(span(again, 4))
            await s.see("one of the new one does", s.store.get_latest_attempt(r.rollout_id))
            await s.see("attempts", s.store.query_attempts(r.rollout_id))

        await self.compare(script)

    async def test_late_spans(self) -> None:
        async def script(s: Side) -> None:
            async def ended(status: str, rollout_status: str, **config: Any) -> Any:
                r = await s.store.start_rollout(status, config=RolloutConfig(**config))
                await until(status, lambda: s.store.get_rollout_by_id(r.rollout_id), lambda x: x.status == rollout_status)
                # The deadline is behind it: from now on nothing but the span counts.
                await s.store.update_rollout(r.rollout_id, config=RolloutConfig(**{**config, "timeout_seconds": None, "unresponsive_seconds": None}))
                return r

            mute = await ended("unresponsive", "failed", unresponsive_seconds=0.05)
            await s.store.add_span(span(mute, 1))
            await s.see("an unresponsive attempt that speaks again", s.store.get_rollout_by_id(mute.rollout_id), REVIVED)
            await s.store.update_attempt(mute.rollout_id, "latest", status="succeeded")
            await s.see("and succeeds", s.store.get_rollout_by_id(mute.rollout_id), REVIVED)

            again = await ended("unresponsive again", "requeuing", unresponsive_seconds=0.05, max_attempts=2, retry_condition=["unresponsive"])
            await s.store.add_span(span(again, 1))
            await s.see("one that waits for its retry", s.store.get_rollout_by_id(again.rollout_id), REVIVED)
            await s.see("needs none", s.store.dequeue_rollout())

            slow = await ended("timeout", "failed", timeout_seconds=0.05)
            await s.store.add_span(span(slow, 1))
            await s.see("a timeout is final for spans", s.store.get_rollout_by_id(slow.rollout_id), TIMED_OUT)

        await self.compare(script)

    async def test_opentelemetry_spans(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            key = (r.rollout_id, r.attempt.attempt_id)
            for recorded in record():
                await s.see(f"add {recorded.name}", s.store.add_otel_span(*key, recorded))
            await s.see("with a sequence id", s.store.add_otel_span(*key, record("again")[0], sequence_id=77))
            await s.see("stored", s.store.query_spans(r.rollout_id))

        await self.compare(script)


class Counter(IdGenerator):
    """Ids that count up, so that both sides get the same spans."""

    def __init__(self, first: int) -> None:
        self._next = first

    def generate_span_id(self) -> int:
        self._next += 1
        return self._next

    def generate_trace_id(self) -> int:
        return self.generate_span_id()


class Kept(SimpleSpanProcessor):
    """Keeps what has ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


def record(prefix: str = "", resource: dict[str, Any] | None = None) -> list[ReadableSpan]:
    """What the OpenTelemetry SDK records of two nested spans with attributes, an event, a link and an exception."""
    # No limits, no environment: the same on every machine.
    provider = TracerProvider(resource=Resource(resource or {"service.name": "compat"}), id_generator=Counter(100 + len(prefix) * 100))
    kept = Kept()
    provider.add_span_processor(kept)
    tracer = provider.get_tracer("compat", "1.0")
    second = 1_000_000_000
    with tracer.start_as_current_span(f"{prefix}outer", start_time=1700000000 * second, end_on_exit=False) as outer:
        outer.set_attributes({"i": 1, "f": 1.0, "b": True, "s": "ä", "l": [1, 2], "fl": [1.0, 2.0], "sl": ["x"], "bl": [True]})
        outer.add_event("event", {"k": 2.0}, timestamp=1700000001 * second)
        inner = tracer.start_span(f"{prefix}inner", links=[trace_api.Link(outer.get_span_context(), {"why": "because"})], start_time=1700000000 * second + 1)
        inner.set_status(Status(StatusCode.ERROR, "broken"))
        inner.add_event("exception", {"exception.type": "ValueError", "exception.message": "no"}, timestamp=1700000001 * second + 123456789)
        inner.end(1700000002 * second)
        outer.set_status(Status(StatusCode.OK))
        outer.end(1700000003 * second)
    return kept.spans


def kv(key: str, **value: Any) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(**value))


def request(rollout: Any, *spans: ProtoSpan, **resource: Any) -> bytes:
    """An OTLP request with the rollout's ids in its resource."""
    out = ResourceSpans(scope_spans=[ScopeSpans(spans=spans)], schema_url="https://example.com/otlp")
    if rollout is not None:
        out.resource.attributes.extend(
            [kv("agentlightning.rollout_id", string_value=rollout.rollout_id), kv("agentlightning.attempt_id", string_value=rollout.attempt.attempt_id)]
        )
    out.resource.attributes.extend(kv(k.replace("__", "."), **v) for k, v in resource.items())
    return ExportTraceServiceRequest(resource_spans=[out]).SerializeToString()


def proto(n: int, *attributes: KeyValue, **fields: Any) -> ProtoSpan:
    values: dict[str, Any] = {
        "trace_id": n.to_bytes(16, "big"),
        "span_id": n.to_bytes(8, "big"),
        "name": f"otlp {n}",
        "start_time_unix_nano": 1_700_000_000_123_456_789 + n,
        "end_time_unix_nano": 1_700_000_001_000_000_000,
        "attributes": attributes,
    }
    return ProtoSpan(**{**values, **fields})


class OTLP(DifferentialTest):
    async def test_the_package_exports(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            await s.see("endpoint", s.store.otlp_traces_endpoint().removeprefix(s.url))
            await s.see("capabilities", dict(s.store.capabilities))
            exporter = LightningStoreOTLPExporter()
            exporter.enable_store_otlp(s.store.otlp_traces_endpoint(), r.rollout_id, r.attempt.attempt_id)
            await s.see("export", str(exporter.export(record())))
            await s.see("export again", str(exporter.export(record("second "))))
            await s.see("and the same once more", str(exporter.export(record())))
            await s.see("stored", s.store.query_spans(r.rollout_id))
            await s.see("the rollout runs", s.store.get_rollout_by_id(r.rollout_id))

        await self.compare(script)

    async def test_mapping(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            other = await s.store.start_rollout(2)
            odd = [
                kv("text", string_value="ä\U0001f600"),
                kv("int", int_value=-(2**63)),
                kv("double", double_value=1.0),
                kv("bool", bool_value=True),
                kv("bytes", bytes_value=b"\x00\xff"),
                kv("list", array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(int_value=2)])),
                kv("empty", array_value=ArrayValue()),
            ]
            elsewhere = [
                kv("agentlightning.rollout_id", string_value=other.rollout_id),
                kv("agentlightning.attempt_id", string_value=other.attempt.attempt_id),
            ]
            bodies = {
                "attributes": request(r, proto(1, *odd)),
                "parent, status, short ids": request(
                    r,
                    proto(2, parent_span_id=b"\x01\x02", status={"code": 2, "message": "bad"}, trace_id=b"\x07", span_id=b"\xaa"),
                    proto(3, status={"code": 1}, end_time_unix_nano=0),
                ),
                "events and links": request(
                    r,
                    proto(
                        4,
                        events=[{"name": "e", "time_unix_nano": 1_700_000_000_500_000_000, "attributes": odd[:3]}, {"name": "f"}],
                        links=[{"trace_id": b"\x01" * 16, "span_id": b"\x02" * 8, "attributes": odd[3:4]}, {"trace_id": b"\x03" * 16, "span_id": b"\x04" * 8}],
                    ),
                ),
                "ids of another rollout on the span": request(r, proto(5, *elsewhere), proto(6)),
                "a sequence id for all": request(r, proto(7), proto(8), agentlightning__span_sequence_id={"int_value": 50}),
                "one as text": request(r, proto(9), agentlightning__span_sequence_id={"string_value": "60"}),
                "one of its own": request(r, proto(10, kv("agentlightning.span_sequence_id", int_value=70)), agentlightning__span_sequence_id={"int_value": 65}),
                "not a number, negative": request(
                    r, proto(11, kv("agentlightning.span_sequence_id", string_value="x")), proto(12, kv("agentlightning.span_sequence_id", int_value=-1))
                ),
                "a duplicate": request(r, proto(1, name="twice"), proto(13)),
                "no ids": request(None, proto(14)),
                "nothing": b"",
            }
            for name, body in bodies.items():
                await post(s, name, body, ours=NO_IDS if name == "no ids" else None)
            await s.see("stored", s.store.query_spans(r.rollout_id), DUPLICATE)
            await s.see("stored elsewhere", s.store.query_spans(other.rollout_id))

        await self.compare(script)

    async def test_the_transport(self) -> None:
        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            await post(s, "gzip", gzip.compress(request(r, proto(1)), mtime=0), **{"Content-Encoding": "gzip"})
            await post(s, "parameters", request(r, proto(2)), **{"Content-Type": "application/x-protobuf; charset=utf-8"})
            await post(s, "gzip wanted", request(r, proto(3)), **{"Accept-Encoding": "br, gzip;q=0.5"})
            await post(s, "text", b"hello", **{"Content-Type": "text/plain"})
            await post(s, "not protobuf", b"\xff\xff\xff", ours=Ours("the parser words its error", {"body": (BROKEN, BROKEN)}))
            for path in ("/v1/logs", "/v1/development/profiles"):
                await s.raw("POST", path, body=b"")
            await s.see("stored", s.store.query_spans(r.rollout_id))

        await self.compare(script)

    async def test_our_answers_to_bad_spans(self) -> None:
        """What is an error 500 there, and costs the whole batch, costs the bad span here."""

        async def script(s: Side) -> None:
            r = await s.store.start_rollout(1)
            nested = kv("a", kvlist_value=KeyValueList(values=[kv("b", int_value=1), kv("c", kvlist_value=KeyValueList(values=[kv("d", string_value="x")]))]))
            why = "a bad span is counted as rejected and never costs its batch"
            await post(s, "unknown rollout", request(None, proto(1, kv("agentlightning.rollout_id", string_value="nobody"), kv("agentlightning.attempt_id", string_value="x"))), ours=Ours(why, REJECTED))
            await post(s, "nested attributes are flattened", request(r, proto(2, nested)), ours=Ours("nested maps are flattened with dots", ACCEPTED))
            await post(s, "not a finite number", request(r, proto(3, kv("v", double_value=float("nan")))))
            stored = await s.store.query_spans(r.rollout_id) if s.name == "ours" else []
            await s.see("attributes", [dict(x.attributes) for x in stored], Ours("they become text", {"": ([], [{"a.b": 1, "a.c.d": "x"}, {"v": "NaN"}])}))

        await self.compare(script)


async def post(s: Side, what: str, body: bytes, ours: Ours | None = None, **headers: str) -> None:
    """Posts an OTLP request and sees its status, media type, encoding and the message that it answers with."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        sent = {"Content-Type": "application/x-protobuf", "Accept-Encoding": "identity", **headers}
        async with session.post(s.url + "/v1/traces", data=body, headers=sent) as r:
            answer = await r.read()
            encoding = r.headers.get("Content-Encoding")
            if encoding == "gzip":
                answer = gzip.decompress(answer)
            seen: dict[str, Any] = {"status": r.status, "type": r.headers.get("Content-Type"), "encoding": encoding, "body": answer.hex()}
    if seen["status"] == 400 and what == "not protobuf":
        seen["body"] = BROKEN if b"Unable to parse OTLP traces payload: " in answer else answer.decode(errors="replace")
    elif seen["status"] == 200 and answer:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
        seen["body"] = {"rejected_spans": partial.rejected_spans, "explained": bool(partial.error_message)}
    elif seen["status"] == 500:
        seen["body"] = ""
    await s.see(what, seen, ours)


NO_IDS = Ours("a span that cannot be stored is counted as rejected", {"body": ("", {"rejected_spans": 1, "explained": True})})
BROKEN = "<unable to parse>"
SEQUENCE = Ours("a rejected span advances no counter", {"": (10, 4)})
DUPLICATE = Ours(SEQUENCE.why, {"items/11/sequence_id": (74, 73)})
REVIVED = Ours(OUTCOME, {"attempt/metadata": (None, ANY)})
TIMED_OUT = ENDED
ALL_OF_NOTHING = Ours("no optional filter matches all", {"items": ([], ANY), "total": (0, 6)})
REJECTED = {"status": (500, 200), "type": ("text/plain; charset=utf-8", "application/x-protobuf"), "body": ("", {"rejected_spans": 1, "explained": True})}
ACCEPTED = {"status": (500, 200), "type": ("text/plain; charset=utf-8", "application/x-protobuf")}
