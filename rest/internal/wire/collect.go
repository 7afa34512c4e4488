package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// CollectQuery are the parameters of [Collect]. Metadata has elements of the form
// key=value.
type CollectQuery struct {
	Params   agl.CollectParams
	Metadata []string
}

// NewCollectQuery returns the parameters for a collector's arguments.
func NewCollectQuery(p agl.CollectParams) *CollectQuery {
	q := &CollectQuery{Params: p}
	for _, key := range slices.Sorted(maps.Keys(p.Filter.Metadata)) {
		q.Metadata = append(q.Metadata, key+"="+p.Filter.Metadata[key])
	}
	return q
}

// Query returns the query string's parameters.
func (q *CollectQuery) Query() Query {
	p := &q.Params
	// Strict: a filter that is misspelt would hand out what must not be learned from.
	return Query{strict: true, members: members{
		{"since", &p.Since, optional},
		{"min", &p.Min, optional},
		{"max", &p.Max, optional},
		{"wait_seconds", &p.MaxWait, optional},
		{"status_in", &p.Filter.StatusIn, optional},
		{"mode_in", &p.Filter.ModeIn, optional},
		{"resources_id_in", &p.Filter.ResourcesIDIn, optional},
		{"metadata", &q.Metadata, optional},
	}}
}

// Collect returns the arguments for a collector.
func (q *CollectQuery) Collect() (agl.CollectParams, error) {
	for _, pair := range q.Metadata {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return q.Params, agl.Errorf(agl.CodeInvalid, "metadata: got %.100q, must be key=value", pair)
		}
		if q.Params.Filter.Metadata == nil {
			q.Params.Filter.Metadata = map[string]string{}
		}
		q.Params.Filter.Metadata[key] = value
	}
	return q.Params, nil
}
