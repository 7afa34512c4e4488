package otlp

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/agl-go/agl"
)

// The attributes of a data point, or of its resource, that say where it belongs.
const (
	AttrRunID = "agl.run_id"
	AttrStep  = "agl.step" // of the run, a number from 0; without it the run's newest
)

// serviceName is the resource attribute that every OpenTelemetry SDK sets.
const serviceName = "service.name"

// MaxRunSteps bounds the steps of all runs that one metrics request may name, because each is written separately.
const MaxRunSteps = 10_000

// Metrics is a decoded export request of metrics.
type Metrics struct {
	Rejections

	// Points are the values that name their run, in the order of the document.
	Points []Point

	growth growth
	steps  map[stepOf]struct{}
}

// Point holds the values of one data point: one for a gauge or a sum, several for the other types.
type Point struct {
	RunID   string
	Service string // the resource's service.name
	Step    agl.Null[int]
	Values  []Value
}

// Value is a number with its name in the run.
type Value struct {
	Name  string
	Value float64
}

// pointSize estimates the memory that a point takes besides its names, in bytes.
const pointSize = 128

// stepOf is a step of a run.
type stepOf struct {
	run  string
	step agl.Null[int]
}

// DecodeMetrics reads an export request of metrics. An empty document has no points. A document that is not an export
// request, or whose values nest deeper than [MaxDepth], is agl.ErrInvalid.
//
// Gauges and sums keep their names. A histogram becomes NAME/count and NAME/mean, and NAME/min and NAME/max if it has
// them; a summary becomes NAME/count, NAME/mean and NAME/pNN for each quantile. Attributes other than [AttrRunID] and
// [AttrStep] follow the name: NAME{key=value,key=value}, in the order of their keys.
//
// It rejects points without a run, points with a step or a value that a run cannot hold, and points with delta
// temporality, which are meant to be added to earlier values, whereas the store replaces them.
func DecodeMetrics(data []byte, encoding Encoding) (Metrics, error) {
	if len(data) == 0 {
		return Metrics{}, nil
	}
	if err := check(data, encoding, checkMetrics); err != nil {
		return Metrics{}, agl.Errorf(agl.CodeInvalid, "OTLP metrics payload: %w", err)
	}
	var decoded pmetric.Metrics
	var err error
	if encoding == JSON {
		decoded, err = new(pmetric.JSONUnmarshaler).UnmarshalMetrics(data)
	} else {
		decoded, err = new(pmetric.ProtoUnmarshaler).UnmarshalMetrics(data)
	}
	if err != nil {
		return Metrics{}, agl.Errorf(agl.CodeInvalid, "Unable to parse OTLP metrics payload: %w", err)
	}
	m := Metrics{growth: growth{left: MaxGrowth*len(data) + minGrowth}, steps: map[stepOf]struct{}{}}
	for _, rm := range decoded.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, metric := range sm.Metrics().All() {
				m.addMetric(metric, rm.Resource().Attributes())
			}
		}
	}
	return m, nil
}

func (m *Metrics) addMetric(metric pmetric.Metric, resource pcommon.Map) {
	add := func(p dataPoint, delta bool, values ...Value) {
		if p.Flags().NoRecordedValue() {
			return
		}
		if err := m.add(p, resource, metric.Name(), delta, values); err != nil {
			m.Reject(1, fmt.Sprintf("metric %.100q %v", metric.Name(), err))
		}
	}
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range metric.Gauge().DataPoints().All() {
			add(p, false, number(p)...)
		}
	case pmetric.MetricTypeSum:
		sum := metric.Sum()
		for _, p := range sum.DataPoints().All() {
			add(p, sum.AggregationTemporality() == pmetric.AggregationTemporalityDelta, number(p)...)
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range metric.Histogram().DataPoints().All() {
			add(p, metric.Histogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta, distribution(p)...)
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range metric.ExponentialHistogram().DataPoints().All() {
			add(p, metric.ExponentialHistogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta, distribution(p)...)
		}
	case pmetric.MetricTypeSummary:
		for _, p := range metric.Summary().DataPoints().All() {
			values := meanOf(p.Count(), p.Sum())
			for _, q := range p.QuantileValues().All() {
				values = append(values, Value{"/p" + strconv.FormatFloat(100*q.Quantile(), 'g', 6, 64), q.Value()})
			}
			add(p, false, values...)
		}
	case pmetric.MetricTypeEmpty:
	}
}

// dataPoint is what all types of data points have in common.
type dataPoint interface {
	Attributes() pcommon.Map
	Flags() pmetric.DataPointFlags
}

func number(p pmetric.NumberDataPoint) []Value {
	switch p.ValueType() {
	case pmetric.NumberDataPointValueTypeInt:
		return []Value{{Value: float64(p.IntValue())}}
	case pmetric.NumberDataPointValueTypeDouble:
		return []Value{{Value: p.DoubleValue()}}
	case pmetric.NumberDataPointValueTypeEmpty:
	}
	return nil
}

func meanOf(count uint64, sum float64) []Value {
	values := []Value{{"/count", float64(count)}}
	if count > 0 {
		values = append(values, Value{"/mean", sum / float64(count)})
	}
	return values
}

// distribution returns a histogram as a few numbers.
func distribution(p interface {
	Count() uint64
	HasSum() bool
	Sum() float64
	HasMin() bool
	Min() float64
	HasMax() bool
	Max() float64
},
) []Value {
	values := meanOf(p.Count(), p.Sum())
	if !p.HasSum() {
		values = values[:1]
	}
	if p.HasMin() {
		values = append(values, Value{"/min", p.Min()})
	}
	if p.HasMax() {
		values = append(values, Value{"/max", p.Max()})
	}
	return values
}

// add translates one data point, or returns why it cannot be stored. The names of its values are suffixes of the
// metric's name.
func (m *Metrics) add(p dataPoint, resource pcommon.Map, metric string, delta bool, values []Value) error {
	own := p.Attributes()
	runID := identity(AttrRunID, own, resource)
	if runID == "" {
		return fmt.Errorf("has no %s, neither a data point nor its resource", AttrRunID)
	}
	if len(values) == 0 {
		return errors.New("has no value")
	}
	if delta {
		return fmt.Errorf("has delta temporality, must be cumulative: the last value of a step replaces the earlier ones")
	}
	step, err := stepIn(own, resource)
	if err != nil {
		return err
	}
	of := stepOf{runID, step}
	if m.steps[of] = struct{}{}; len(m.steps) > MaxRunSteps {
		delete(m.steps, of)
		return fmt.Errorf("has a step beyond the first %d of the request, the maximum", MaxRunSteps)
	}
	series := labels(own)
	for i := range values {
		v := &values[i]
		switch v.Name = text(metric + v.Name + series); {
		case math.IsNaN(v.Value) || math.IsInf(v.Value, 0):
			return fmt.Errorf("has the value %v, must be finite", v.Value)
		case metric == "" || len(v.Name) > agl.MaxRunMetricBytes:
			return fmt.Errorf("becomes the name %.300q, must have 1 to %d bytes with the attributes", v.Name, agl.MaxRunMetricBytes)
		}
		if m.growth.left -= pointSize + len(v.Name); m.growth.left < 0 {
			return fmt.Errorf("makes the request more than %d times larger, once its name and attributes are spelled out", MaxGrowth)
		}
	}
	m.Points = append(m.Points, Point{RunID: runID, Service: text(identity(serviceName, resource)), Step: step, Values: values})
	return nil
}

// stepIn returns the step in the first map that has one.
func stepIn(maps ...pcommon.Map) (step agl.Null[int], err error) {
	text := identity(AttrStep, maps...)
	if text == "" {
		return step, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return step, fmt.Errorf("has the %s %.100q, must be a whole number from 0", AttrStep, text)
	}
	return agl.Some(n), nil
}

// labels returns the attributes that distinguish the series of a metric, as text.
func labels(attributes pcommon.Map) string {
	type label struct{ key, value string }
	all := make([]label, 0, attributes.Len())
	for key, v := range attributes.All() {
		if key != AttrRunID && key != AttrStep {
			all = append(all, label{key, v.AsString()})
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.SortFunc(all, func(a, b label) int { return cmp.Compare(a.key, b.key) })
	var out strings.Builder
	separator := "{"
	for _, l := range all {
		out.WriteString(separator + l.key + "=" + l.value)
		separator = ","
	}
	return out.String() + "}"
}
