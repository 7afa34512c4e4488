"""Exports metrics of a run with OpenTelemetry's SDK, as any trainer would: its endpoint and resource come from the environment."""

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(compression=Compression.Gzip))])
meter = provider.get_meter("trainer")
loss, tokens, seconds = meter.create_gauge("loss"), meter.create_counter("tokens"), meter.create_histogram("seconds")
for step in (1, 2):
    loss.set(1 / step, {"agl.step": step})
    for phase in ("sample", "train"):
        tokens.add(100 * step, {"agl.step": step, "phase": phase})
        seconds.record(step, {"agl.step": step})
        seconds.record(3 * step, {"agl.step": step})
    if not provider.force_flush():
        raise SystemExit("the metrics of a step were not accepted")
loss.set(7)  # of the newest step
provider.shutdown()
