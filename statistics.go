package agl

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Statistics counts what a store holds.
type Statistics struct {
	Name           string
	TotalRollouts  int
	TotalAttempts  int
	TotalSpans     int
	TotalResources int
	TotalWorkers   int
	Uptime         time.Duration
	Memory         *MemoryStatistics // nil for a store that does not keep spans in memory
}

// MemoryStatistics tells how full the memory for spans is, in bytes.
type MemoryStatistics struct {
	TotalSpanBytes         int64
	EvictionThresholdBytes int64
	SafeThresholdBytes     int64
	MemoryCapacityBytes    int64
}

// AppendJSON appends the wire form. The memory's figures are members of the same
// object and absent without them.
func (s *Statistics) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("name", s.Name)
	o.Int("total_rollouts", int64(s.TotalRollouts))
	o.Int("total_attempts", int64(s.TotalAttempts))
	o.Int("total_spans", int64(s.TotalSpans))
	o.Int("total_resources", int64(s.TotalResources))
	o.Int("total_workers", int64(s.TotalWorkers))
	o.Float("uptime", s.Uptime.Seconds())
	if m := s.Memory; m != nil {
		o.Int("total_span_bytes", m.TotalSpanBytes)
		o.Int("eviction_threshold_bytes", m.EvictionThresholdBytes)
		o.Int("safe_threshold_bytes", m.SafeThresholdBytes)
		o.Int("memory_capacity_bytes", m.MemoryCapacityBytes)
	}
	return o.End()
}

// MarshalJSON returns the wire form.
func (s Statistics) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (s *Statistics) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, s) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (s *Statistics) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = Statistics{}
	in := reader(dec)
	memory := func() *MemoryStatistics {
		if s.Memory == nil {
			s.Memory = new(MemoryStatistics)
		}
		return s.Memory
	}
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "name":
			return in.String(&s.Name)
		case "total_rollouts":
			return rawjson.Int(in, &s.TotalRollouts)
		case "total_attempts":
			return rawjson.Int(in, &s.TotalAttempts)
		case "total_spans":
			return rawjson.Int(in, &s.TotalSpans)
		case "total_resources":
			return rawjson.Int(in, &s.TotalResources)
		case "total_workers":
			return rawjson.Int(in, &s.TotalWorkers)
		case "uptime":
			var seconds float64
			err := rawjson.Float(in, &seconds)
			s.Uptime = time.Duration(seconds * float64(time.Second))
			return err
		case "total_span_bytes":
			return rawjson.Int(in, &memory().TotalSpanBytes)
		case "eviction_threshold_bytes":
			return rawjson.Int(in, &memory().EvictionThresholdBytes)
		case "safe_threshold_bytes":
			return rawjson.Int(in, &memory().SafeThresholdBytes)
		case "memory_capacity_bytes":
			return rawjson.Int(in, &memory().MemoryCapacityBytes)
		default:
			return dec.SkipValue()
		}
	})
}
