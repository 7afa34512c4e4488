package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// StartRun returns the body that starts a run.
func StartRun(p *agl.StartRunParams) Envelope {
	return members{
		{"run_id", &p.RunID, optional},
		{"name", &p.Name, optional},
		{"algorithm", &p.Algorithm, optional},
		{"metadata", (*dict)(&p.Metadata), optional},
	}
}

// UpdateRun returns the body that changes a run, which is in the path.
func UpdateRun(p *agl.UpdateRunParams) Envelope {
	return members{
		{"status", setEnum[agl.RunStatus]{&p.Status, agl.RunStatuses}, notNull},
		{"error", set[string]{&p.Error}, notNull},
		{"name", set[string]{&p.Name}, notNull},
		{"metadata", (*dict)(&p.Metadata), notNull},
	}
}

// QueryRuns returns the parameters of a query of runs.
func QueryRuns(p *agl.QueryRunsParams) Query {
	return Query{members: members{{"limit", &p.Limit, optional}, {"offset", &p.Offset, optional}}}
}

// QueryRunMetrics returns the parameters of a query of metrics, except the run, which is in the path.
func QueryRunMetrics(p *agl.QueryRunMetricsParams) Query {
	return Query{members: members{
		{"from", &p.From, optional},
		{"to", &p.To, optional},
		{"limit", &p.Limit, optional},
		{"offset", &p.Offset, optional},
	}}
}

// AddRunMetrics is the body that adds metrics to a run, which is in the path: one step, or a list of steps.
type AddRunMetrics []agl.RunMetrics

// AppendJSON implements [Envelope].
func (m *AddRunMetrics) AppendJSON(dst []byte) []byte {
	return rawjson.AppendArray(dst, *m, func(dst []byte, step agl.RunMetrics) []byte { return step.AppendJSON(dst) })
}

// UnmarshalJSONFrom implements [Envelope].
func (m *AddRunMetrics) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*m = nil
	one := func() error {
		*m = append(*m, agl.RunMetrics{})
		return (&(*m)[len(*m)-1]).UnmarshalJSONFrom(dec)
	}
	if dec.PeekKind() == '{' {
		return one()
	}
	return reader(dec).List(one)
}
