package wire

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/search"
)

// Query holds the parameters of a query, which are either the body of a search or a query string.
type Query struct {
	members
	paging *agl.Paging // nil if the result has no pages
	sortBy string      // the default of paging.SortBy
	strict bool        // unknown parameters are refused
}

// QueryRollouts returns the parameters of a query of rollouts.
func QueryRollouts(p *agl.QueryRolloutsParams) Query {
	return newQuery(&p.Paging, "", members{
		{"status_in", &p.StatusIn, optional},
		{"rollout_id_in", &p.RolloutIDIn, optional},
		{"rollout_id_contains", &p.RolloutIDContains, optional},
		{"mode_in", &p.ModeIn, optional},
		{"label", &p.Labels, optional},
		{"reward_min", &p.RewardMin, optional},
		{"reward_max", &p.RewardMax, optional},
		{"after", &p.After, optional},
		{"filter_logic", &p.Logic, optional},
	})
}

// FindRollouts returns the parameters of a search of rollouts.
func FindRollouts(p *search.Params) Query {
	f := &p.Filters
	return Query{members: members{
		{"status_in", &f.StatusIn, optional},
		{"rollout_id_contains", &f.RolloutIDContains, optional},
		{"mode_in", &f.ModeIn, optional},
		{"label", &f.Labels, optional},
		{"reward_min", &f.RewardMin, optional},
		{"reward_max", &f.RewardMax, optional},
		{"outcome_in", &p.OutcomeIn, optional},
		{"version", &p.Version, optional},
		{"text", &p.Text, optional},
		{"attribute", &p.Attributes, optional},
		{"after", &p.After, optional},
		{"limit", &p.Limit, optional},
	}}
}

// QueryAttempts returns the parameters of a query of attempts, except the rollout, which is in the path.
func QueryAttempts(p *agl.QueryAttemptsParams) Query {
	return newQuery(&p.Paging, "sequence_id", nil)
}

// QueryResources returns the parameters of a query of resources.
func QueryResources(p *agl.QueryResourcesParams) Query {
	return newQuery(&p.Paging, "", members{
		{"resources_id", &p.ResourcesID, optional},
		{"resources_id_contains", &p.ResourcesIDContains, optional},
	})
}

// GetResources returns the parameters of a request for a bundle, except its id, which is in the path.
func GetResources(p *agl.GetResourcesParams) Query {
	return Query{members: members{{"version", &p.Version, optional}, {"rollout_id", &p.RolloutID, optional}}}
}

// KeepLatest returns the parameter of a request that stores a bundle.
func KeepLatest(keep *bool) Query {
	return Query{members: members{{"keep_latest", keep, optional}}}
}

// QueryWorkers returns the parameters of a query of workers.
func QueryWorkers(p *agl.QueryWorkersParams) Query {
	return newQuery(&p.Paging, "", members{
		{"status_in", &p.StatusIn, optional},
		{"worker_id_contains", &p.WorkerIDContains, optional},
		{"filter_logic", &p.Logic, optional},
	})
}

// QuerySpans returns the parameters of a query of spans, which is answered with [SpansInShort] if it names Values.
func QuerySpans(p *agl.QueryShortSpansParams) Query {
	return newQuery(&p.Paging, "sequence_id", members{
		{"rollout_id", &p.RolloutID, required},
		{"attempt_id", &p.AttemptID, optional},
		{"trace_id", &p.TraceID, optional},
		{"trace_id_contains", &p.TraceIDContains, optional},
		{"span_id", &p.SpanID, optional},
		{"span_id_contains", &p.SpanIDContains, optional},
		{"parent_id", &p.ParentID, optional},
		{"parent_id_contains", &p.ParentIDContains, optional},
		{"name", &p.Name, optional},
		{"name_contains", &p.NameContains, optional},
		{"attribute_names", &p.AttributeNames, optional},
		{"value_names", &p.Values, optional},
		{"filter_logic", &p.Logic, optional},
	})
}

func newQuery(p *agl.Paging, sortBy string, filters members) Query {
	return Query{paging: p, sortBy: sortBy, members: append(filters,
		member{"limit", &p.Limit, optional},
		member{"offset", &p.Offset, optional},
		member{"sort_by", &p.SortBy, optional},
		member{"sort_order", &p.Order, optional},
	)}
}

// UnmarshalJSONFrom reads the body of a search. Absent members get the defaults of the HTTP API.
func (q Query) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if q.paging == nil {
		return q.members.UnmarshalJSONFrom(dec)
	}
	q.paging.Limit, q.paging.SortBy = -1, q.sortBy
	err := q.members.UnmarshalJSONFrom(dec)
	if err == nil && q.paging.Limit == 0 { // which a store would take for all
		err = ErrDetail(http.StatusBadRequest, "Limit must be greater than 0 or -1 for no limit")
	}
	return err
}

// Encode returns the query string.
func (q Query) Encode() string {
	values := url.Values{}
	for name, value := range rawjson.Members(q.AppendJSON(nil)) {
		switch value[0] {
		case '"':
			values.Add(string(name), rawjson.Unquote(value))
		case '[':
			for element := range rawjson.Elements(value) {
				values.Add(string(name), rawjson.Unquote(element))
			}
		default:
			values.Add(string(name), string(value))
		}
	}
	return values.Encode()
}

// Parse reads a query string.
func (q Query) Parse(query string, d *Decoder) error {
	doc, err := q.parse(query)
	if err != nil {
		return err
	}
	return errQuery(doc, d.decode(doc, q))
}

// parse turns a query string into the body of a search, with all values as strings. If a name repeats, the last value
// counts, except for lists.
func (q Query) parse(query string) (doc []byte, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, ErrDetail(http.StatusBadRequest, "the query string is malformed: "+err.Error())
	}
	body := rawjson.NewObject(nil)
	// In the order of the names, so that the same query always gets the same error.
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		last := given[len(given)-1]
		m := q.find(name)
		switch {
		case m == nil && q.strict:
			return nil, ErrDetail(http.StatusBadRequest, fmt.Sprintf("query: there is no parameter %.100q", name))
		case m == nil:
		case m.isList():
			writeList(&body, m, given, rawjson.AppendString[string])
		case q.paging != nil && m.to == &q.paging.SortBy && last == "":
			body.String(name, " ") // an invalid name, so that it is refused instead of replaced by the default
		case m.isBool() && (last == "true" || last == "false"):
			body.Bool(name, last == "true")
		default:
			body.String(name, last)
		}
	}
	return body.End(), nil
}
