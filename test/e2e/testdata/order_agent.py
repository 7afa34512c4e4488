"""An agent that does the steps of its task, with rewards by OpenTelemetry's batch processor or by agl_go."""

from __future__ import annotations

import concurrent.futures
import json
import urllib.request
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import agl_go


def call(question: str, stream: bool) -> None:
    llm = agl_go.llm()
    body = {"model": llm.model, "messages": [{"role": "user", "content": question}], "stream": stream}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + llm.api_key}
    request = urllib.request.Request(llm.base_url + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        reply.read()


def handle(task: dict[str, Any]) -> None:
    provider = TracerProvider(resource=Resource.create({}), shutdown_on_exit=False)
    batches = BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=task["delay_ms"])
    provider.add_span_processor(batches)
    tracer = provider.get_tracer("agent")
    otel = task["by"] == "opentelemetry"

    def reward(value: float) -> None:
        if not otel:
            agl_go.emit_reward(value)
            return
        attributes = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": value}
        tracer.start_span("agentlightning.annotation", attributes=attributes).end()

    def message() -> None:
        if not otel:
            agl_go.emit_message("a message")
            return
        tracer.start_span("agentlightning.message", attributes={"agentlightning.message.body": "a message"}).end()

    def operation() -> None:
        with tracer.start_as_current_span("operation"):
            pass

    for i, step in enumerate(task["steps"]):
        question = f"question %d of step {i}."
        if step in ("call", "stream"):
            call(question % 0, step == "stream")
        elif step == "retried":  # the model refuses it at first
            call("retried " + question % 0, False)
        elif step == "calls":
            with concurrent.futures.ThreadPoolExecutor(task["width"]) as pool:
                for done in [pool.submit(call, question % n, n % 2 == 0) for n in range(task["width"])]:
                    done.result()
        elif step == "reward":
            reward((i + 1) / 10)
        else:
            {"message": message, "operation": operation}[step]()
    provider.shutdown()


agl_go.serve(handle)
