package store

import (
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// sortable returns what a query can be sorted by: the scalar fields by their
// wire names, in the order of the type.
func sortable(kind sortKind) []string {
	switch kind {
	case sortRollouts:
		return []string{"rollout_id", "start_time", "end_time", "mode", "resources_id", "status"}
	case sortAttempts:
		return []string{
			"rollout_id", "attempt_id", "sequence_id", "start_time", "end_time", "status", "worker_id", "last_heartbeat_time",
		}
	case sortSpans:
		return []string{
			"rollout_id", "attempt_id", "sequence_id", "trace_id", "span_id", "parent_id", "name", "start_time", "end_time",
		}
	case sortResources:
		return []string{"resources_id", "create_time", "update_time", "version"}
	case sortWorkers:
	}
	return []string{
		"worker_id", "status", "last_heartbeat_time", "last_dequeue_time", "last_busy_time", "last_idle_time",
		"current_rollout_id", "current_attempt_id",
	}
}

type sortKind int

const (
	sortRollouts sortKind = iota
	sortAttempts
	sortSpans
	sortResources
	sortWorkers
)

// checkQuery validates what queries have in common and puts the limit into the
// form that drivers get.
func checkQuery(p *agl.Paging, logic agl.FilterLogic, kind sortKind) error {
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
	}
	if fields := sortable(kind); p.SortBy != "" && !slices.Contains(fields, p.SortBy) {
		return agl.Errorf(agl.CodeInvalid, "Invalid sort_by: %s, allowed fields are: %s", p.SortBy, strings.Join(fields, ", "))
	}
	return nil
}
