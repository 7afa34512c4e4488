"""Reads recorded spans with the adapters of the Python package and prints what they make of them."""

import ast
import json
import sys

from agentlightning.adapter.messages import TraceToMessages
from agentlightning.adapter.triplet import LlmProxyTraceToTriplet, TracerTraceToTriplet
from agentlightning.types import Span

with open(sys.argv[1]) as f:
    spans = [Span.model_validate(s) for s in json.load(f)]

out = {
    "proxy": [t.model_dump() for t in LlmProxyTraceToTriplet().adapt(spans)],
    "tracer": [t.model_dump() for t in TracerTraceToTriplet(llm_call_match="litellm_request").adapt(spans)],
    "messages": TraceToMessages().adapt(spans),
    "raw": [
        {key: ast.literal_eval(value) for key, value in s.attributes.items() if isinstance(value, str) and value[0] in "[{"}
        for s in spans
        if s.name == "raw_gen_ai_request"
    ],
}
json.dump(out, sys.stdout, indent=1, default=str)
print()
