"""Prints the rewards that the Python package's adapter gives to the calls of recorded spans."""

import json
import sys

from agentlightning.adapter.triplet import LlmProxyTraceToTriplet
from agentlightning.types import Span

spans = [Span.model_validate(s) for s in json.load(sys.stdin)]
json.dump([t.reward for t in LlmProxyTraceToTriplet().adapt(spans)], sys.stdout)
