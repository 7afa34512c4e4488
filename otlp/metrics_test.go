package otlp_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/otlp"
)

// metrics builds a request with one resource, and the metric "loss" that fill fills.
func metrics(t testing.TB, resource []attribute, fill func(pmetric.Metric)) map[otlp.Encoding][]byte {
	t.Helper()
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	put(t, rm.Resource().Attributes(), resource)
	metric := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("loss")
	fill(metric)
	proto, err := new(pmetric.ProtoMarshaler).MarshalMetrics(md)
	if err != nil {
		t.Fatal(err)
	}
	text, err := new(pmetric.JSONMarshaler).MarshalMetrics(md)
	if err != nil {
		t.Fatal(err)
	}
	return map[otlp.Encoding][]byte{otlp.Protobuf: proto, otlp.JSON: text}
}

// gauge fills a metric with one number and attributes.
func gauge(t testing.TB, v float64, attributes ...attribute) func(pmetric.Metric) {
	return func(m pmetric.Metric) {
		p := m.SetEmptyGauge().DataPoints().AppendEmpty()
		p.SetDoubleValue(v)
		put(t, p.Attributes(), attributes)
	}
}

func TestDecodeMetrics(t *testing.T) {
	t.Parallel()
	run := []attribute{{otlp.AttrRunID, "r"}, {"service.name", "trainer"}}
	for _, tc := range []struct {
		name     string
		resource []attribute
		fill     func(pmetric.Metric)
		want     string // the points, or the reason why there are none
	}{
		{"a gauge", run, gauge(t, 0.5, attribute{otlp.AttrStep, int64(3)}), "r@3 trainer loss=0.5"},
		{"step 0", run, gauge(t, 0.5, attribute{otlp.AttrStep, int64(0)}), "r@0 trainer loss=0.5"},
		{"no step", run, gauge(t, 0.5), "r@newest trainer loss=0.5"},
		{"the step of the resource, as text", append([]attribute{{otlp.AttrStep, "7"}}, run...), gauge(t, 1), "r@7 trainer loss=1"},
		{"the run of the point first", run, gauge(t, 1, attribute{otlp.AttrRunID, "own"}), "own@newest trainer loss=1"},
		{"attributes in order", run, gauge(t, 1, attribute{"z", true}, attribute{"model", "m"}), "r@newest trainer loss{model=m,z=true}=1"},
		{"a sum of integers", run, func(m pmetric.Metric) {
			sum := m.SetEmptySum()
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			sum.DataPoints().AppendEmpty().SetIntValue(41)
		}, "r@newest trainer loss=41"},
		{"a histogram", run, func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := m.Histogram().DataPoints().AppendEmpty()
			p.SetCount(4)
			p.SetSum(10)
			p.SetMin(1)
			p.SetMax(5)
			p.Attributes().PutStr("phase", "sample")
		}, "r@newest trainer loss/count{phase=sample}=4 loss/mean{phase=sample}=2.5 loss/min{phase=sample}=1 loss/max{phase=sample}=5"},
		{"an empty histogram", run, func(m pmetric.Metric) { m.SetEmptyHistogram().DataPoints().AppendEmpty() }, "r@newest trainer loss/count=0"},
		{"an exponential histogram", run, func(m pmetric.Metric) {
			p := m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
			p.SetCount(2)
			p.SetSum(3)
		}, "r@newest trainer loss/count=2 loss/mean=1.5"},
		{"a summary", run, func(m pmetric.Metric) {
			p := m.SetEmptySummary().DataPoints().AppendEmpty()
			p.SetCount(2)
			p.SetSum(3)
			q := p.QuantileValues().AppendEmpty()
			q.SetQuantile(0.99)
			q.SetValue(2)
		}, "r@newest trainer loss/count=2 loss/mean=1.5 loss/p99=2"},
		{"no recorded value", run, func(m pmetric.Metric) {
			m.SetEmptyGauge().DataPoints().AppendEmpty().SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		}, ""},

		{"no value", run, func(m pmetric.Metric) { m.SetEmptyGauge().DataPoints().AppendEmpty() }, `metric "loss" has no value`},
		{"no run", nil, gauge(t, 1), `metric "loss" has no agl.run_id, neither a data point nor its resource`},
		{"a step that is none", run, gauge(t, 1, attribute{otlp.AttrStep, "1.5"}), `metric "loss" has the agl.step "1.5", must be a whole number from 0`},
		{"a negative step", run, gauge(t, 1, attribute{otlp.AttrStep, int64(-1)}), `metric "loss" has the agl.step "-1", must be a whole number from 0`},
		{"NaN", run, gauge(t, math.NaN()), `metric "loss" has the value NaN, must be finite`},
		{"a long name", run, gauge(t, 1, attribute{"prompt", strings.Repeat("x", 300)}), `must have 1 to 200 bytes with the attributes`},
		{"delta sums", run, func(m pmetric.Metric) {
			m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.Sum().DataPoints().AppendEmpty().SetIntValue(1)
		}, `metric "loss" has delta temporality, must be cumulative`},
		{"delta histograms", run, func(m pmetric.Metric) {
			m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			m.Histogram().DataPoints().AppendEmpty()
		}, `metric "loss" has delta temporality, must be cumulative`},
	} {
		for encoding, data := range metrics(t, tc.resource, tc.fill) {
			batch, err := otlp.DecodeMetrics(data, encoding)
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
				continue
			}
			got := describe(batch)
			if batch.Rejected > 0 {
				if len(batch.Points) != 0 || !strings.Contains(batch.Reason, tc.want) || tc.want == "" {
					t.Errorf("%s, %s: got %d points, %d rejected because %q, want %q", tc.name, encoding.ContentType(), len(batch.Points), batch.Rejected, batch.Reason, tc.want)
				}
			} else if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", tc.name, encoding.ContentType(), diff)
			}
		}
	}
}

// describe writes points as RUN@STEP SERVICE NAME=VALUE ….
func describe(batch otlp.Metrics) string {
	var lines []string
	for _, p := range batch.Points {
		step := "newest"
		if p.Step.Valid {
			step = fmt.Sprint(p.Step.V)
		}
		line := p.RunID + "@" + step + " " + p.Service
		for _, v := range p.Values {
			line += fmt.Sprintf(" %s=%v", v.Name, v.Value)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestDecodeMetricsGarbage(t *testing.T) {
	t.Parallel()
	if batch, err := otlp.DecodeMetrics(nil, otlp.Protobuf); err != nil || len(batch.Points) != 0 {
		t.Errorf("an empty request: %v", err)
	}
	for encoding, data := range map[otlp.Encoding]string{otlp.Protobuf: "\x0a\xff", otlp.JSON: `{"resourceMetrics":3`} {
		if _, err := otlp.DecodeMetrics([]byte(data), encoding); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "OTLP metrics payload") {
			t.Errorf("%s: error is %v, want invalid", encoding.ContentType(), err)
		}
	}
}

// A small request must not become a large one, nor exhaust the stack, wherever the values are.
func TestMetricsBombs(t *testing.T) {
	t.Parallel()
	deep := func(m pcommon.Map) {
		list := m.PutEmptySlice("l")
		for range 10_000 {
			list = list.AppendEmpty().SetEmptySlice()
		}
	}
	run := []attribute{{otlp.AttrRunID, "r"}}
	const tooDeep = "nested deeper than 64 levels"
	for _, tc := range []struct {
		name string
		fill func(pmetric.Metric)
		want string
	}{
		{"in a gauge", func(m pmetric.Metric) { deep(m.SetEmptyGauge().DataPoints().AppendEmpty().Attributes()) }, tooDeep},
		{"in a sum", func(m pmetric.Metric) { deep(m.SetEmptySum().DataPoints().AppendEmpty().Attributes()) }, tooDeep},
		{"in a histogram", func(m pmetric.Metric) { deep(m.SetEmptyHistogram().DataPoints().AppendEmpty().Attributes()) }, tooDeep},
		{"in an exponential histogram", func(m pmetric.Metric) { deep(m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty().Attributes()) }, tooDeep},
		{"in a summary", func(m pmetric.Metric) { deep(m.SetEmptySummary().DataPoints().AppendEmpty().Attributes()) }, tooDeep},
		{"in an exemplar of a gauge", func(m pmetric.Metric) {
			deep(m.SetEmptyGauge().DataPoints().AppendEmpty().Exemplars().AppendEmpty().FilteredAttributes())
		}, tooDeep},
		{"in an exemplar of a histogram", func(m pmetric.Metric) {
			deep(m.SetEmptyHistogram().DataPoints().AppendEmpty().Exemplars().AppendEmpty().FilteredAttributes())
		}, tooDeep},
		{"in an exemplar of an exponential histogram", func(m pmetric.Metric) {
			deep(m.SetEmptyExponentialHistogram().DataPoints().AppendEmpty().Exemplars().AppendEmpty().FilteredAttributes())
		}, tooDeep},
		{"in the metadata", func(m pmetric.Metric) { deep(m.Metadata()) }, tooDeep},
		{"many tiny points", func(m pmetric.Metric) {
			points := m.SetEmptyHistogram().DataPoints()
			for range 150_000 {
				points.AppendEmpty()
			}
		}, "times larger"},
		{"many steps", func(m pmetric.Metric) {
			points := m.SetEmptyGauge().DataPoints()
			for i := range otlp.MaxRunSteps + 10 {
				p := points.AppendEmpty()
				p.SetIntValue(1)
				p.Attributes().PutInt(otlp.AttrStep, int64(i))
			}
		}, "a step beyond the first 10000 of the request"},
	} {
		for encoding, data := range metrics(t, run, tc.fill) {
			batch, err := otlp.DecodeMetrics(data, encoding)
			got := batch.Reason
			if err != nil {
				got = err.Error()
			}
			if tc.name == "many tiny points" && encoding == otlp.JSON {
				continue // there they are not tiny
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%s, %s: got %.200q, want %q", tc.name, encoding.ContentType(), got, tc.want)
			}
		}
	}
}

func FuzzDecodeMetrics(f *testing.F) {
	for encoding, data := range metrics(f, []attribute{{otlp.AttrRunID, "r"}}, gauge(f, 1, attribute{otlp.AttrStep, int64(1)})) {
		f.Add(data, encoding == otlp.JSON)
	}
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		encoding := otlp.Protobuf
		if text {
			encoding = otlp.JSON
		}
		batch, err := otlp.DecodeMetrics(data, encoding)
		if err != nil {
			return
		}
		for _, p := range batch.Points {
			for _, v := range p.Values {
				if p.RunID == "" || v.Name == "" || len(v.Name) > agl.MaxRunMetricBytes || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
					t.Fatalf("accepted: %+v", p)
				}
			}
		}
	})
}
