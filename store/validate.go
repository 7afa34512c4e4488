package store

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

func errClosed() error { return agl.Errorf(agl.CodeUnavailable, "the store is closed") }

func errRollout(id string) error {
	return agl.Errorf(agl.CodeNotFound, "Rollout %s not found", id)
}

func errNoAttempts(rolloutID string) error {
	return agl.Errorf(agl.CodeNotFound, "No attempts found for rollout %s", rolloutID)
}

func errAttempt(rolloutID, attemptID string) error {
	return agl.Errorf(agl.CodeNotFound, "Attempt %s not found for rollout %s", attemptID, rolloutID)
}

// The lengths of ids in random bytes, the same as the reference's.
const (
	rolloutIDBytes   = 6
	attemptIDBytes   = 4
	resourcesIDBytes = 6
)

// maxIDBytes bounds ids and keys. Every database can index this many bytes.
const maxIDBytes = 1024

// givenText is a string that a caller gave, with the name of its field.
type givenText struct{ field, text string }

func checkIDs(ids ...givenText) error {
	for _, given := range ids {
		if len(given.text) > maxIDBytes {
			return agl.Errorf(agl.CodeInvalid, "%s: got %.40q…, which is %d bytes, must be at most %d", given.field, given.text, len(given.text), maxIDBytes)
		}
	}
	return checkTexts(ids)
}

// checkDocument rejects anything but one JSON document; nil passes.
func checkDocument(field string, raw jsontext.Value) error {
	if raw != nil && !raw.IsValid(rawjson.Options()) {
		return agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be a JSON document", field, raw)
	}
	return checkUTF8(field, raw)
}

// checkObject rejects anything but a JSON object; nil passes, and null if nullable.
func checkObject(field string, raw jsontext.Value, nullable bool) error {
	if raw == nil {
		return nil
	}
	kind := raw.Kind()
	if !raw.IsValid(rawjson.Options()) || kind != '{' && (!nullable || kind != 'n') {
		return agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be a JSON object", field, raw)
	}
	return checkUTF8(field, raw)
}

// objectOrNil turns the document null into nil, as metadata is stored.
func objectOrNil(raw jsontext.Value) jsontext.Value {
	if raw.Kind() == 'n' {
		return nil
	}
	return raw
}

func checkMode(m agl.Mode) error {
	if !m.Valid() {
		return agl.Errorf(agl.CodeInvalid, "mode: got %q, must be train, val, test or null", m)
	}
	return nil
}

// checkRolloutFilters validates the filters of a query of rollouts, except the status.
func checkRolloutFilters(p *agl.QueryRolloutsParams) error {
	for _, m := range p.ModeIn {
		if !m.Valid() {
			return agl.Errorf(agl.CodeInvalid, "mode_in: got %.100q, must be train, val or test", m)
		}
	}
	for _, l := range p.Labels {
		switch {
		case len(l.Name) > driver.MaxLabelName:
			return agl.Errorf(agl.CodeInvalid, "label: the name %.60q… has %d bytes; members of metadata with more than %d are no labels", l.Name, len(l.Name), driver.MaxLabelName)
		case len(l.Value) > driver.MaxLabelValue:
			return agl.Errorf(agl.CodeInvalid, "label: the value of %q has %d bytes; values of more than %d are no labels, search for the text instead", l.Name, len(l.Value), driver.MaxLabelValue)
		case l.Name == "" || !utf8.ValidString(l.Name) || !utf8.ValidString(l.Value):
			return agl.Errorf(agl.CodeInvalid, "label: got %.200q, must be a name and a value of UTF-8", l)
		}
	}
	if p.After != "" && p.SortBy != "" && p.SortBy != "start_time" {
		return agl.Errorf(agl.CodeInvalid, "after: must be given with sort_by start_time or none, got %q", p.SortBy)
	}
	for _, bound := range []struct {
		field string
		value agl.Null[float64]
	}{{"reward_min", p.RewardMin}, {"reward_max", p.RewardMax}} {
		if math.IsNaN(bound.value.V) || math.IsInf(bound.value.V, 0) {
			return agl.Errorf(agl.CodeInvalid, "%s: got %g, must be finite", bound.field, bound.value.V)
		}
	}
	return nil
}

// The fields that queries can be sorted by: the wire names of the scalar fields, in the order of the type.
var (
	sortableRollouts  = []string{"rollout_id", "start_time", "end_time", "mode", "resources_id", "status", "reward"}
	sortableAttempts  = []string{"rollout_id", "attempt_id", "sequence_id", "start_time", "end_time", "status", "worker_id", "last_heartbeat_time"}
	sortableSpans     = []string{"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "start_time", "end_time"}
	sortableResources = []string{"resources_id", "create_time", "update_time", "version"}
	sortableWorkers   = []string{
		"worker_id", "status", "last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time", "current_rollout_id", "current_attempt_id",
	}
)

// checkQuery validates what all queries have in common and normalises the limit to
// the form that drivers get.
func checkQuery(p *agl.Paging, logic agl.FilterLogic, sortable []string) error {
	if p.Limit == 0 {
		p.Limit = -1
	}
	switch {
	case p.Limit < -1:
		return agl.Errorf(agl.CodeInvalid, "Limit must be greater than 0 or -1 for no limit")
	case p.Offset < 0:
		return agl.Errorf(agl.CodeInvalid, "Offset must be greater than or equal to 0")
	case logic != "" && logic != agl.FilterAnd && logic != agl.FilterOr:
		return agl.Errorf(agl.CodeInvalid, "filter_logic: got %q, must be 'and' or 'or'", logic)
	case p.Order != "" && p.Order != agl.Ascending && p.Order != agl.Descending:
		return agl.Errorf(agl.CodeInvalid, "sort_order: got %q, must be 'asc' or 'desc'", p.Order)
	case p.SortBy != "" && !slices.Contains(sortable, p.SortBy):
		return agl.Errorf(agl.CodeInvalid, "Invalid sort_by: %s, allowed fields are: %s", p.SortBy, strings.Join(sortable, ", "))
	}
	return nil
}

// checkStatuses rejects a filter by a status that does not exist.
func checkStatuses[S ~string](given, statuses []S) error {
	for i, status := range given {
		if !slices.Contains(statuses, status) {
			return agl.Errorf(agl.CodeInvalid, "status_in[%d]: got %q, must be one of %v", i, status, statuses)
		}
	}
	return nil
}
