package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// busyRun is a store in which a run gets metrics while it is being deleted.
type busyRun struct {
	*store.Store

	add func()
}

func (s *busyRun) QueryDocuments(ctx context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error) {
	page, err := s.Store.QueryDocuments(ctx, p)
	if add := s.add; add != nil {
		s.add = nil
		add()
	}
	return page, err
}

// A run that is deleted while it is under way leaves no metrics, which a run of the same id would have.
func TestDeleteRunUnderWay(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	runs := agl.RunsOf(s)
	add := func(step int) {
		t.Helper()
		if _, err := runs.AddRunMetrics(t.Context(), agl.AddRunMetricsParams{RunID: "r", Metrics: []agl.RunMetrics{{Step: step, Values: map[string]float64{"loss": 1}}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: "r"}); err != nil {
		t.Fatal(err)
	}
	add(1)
	if err := agl.RunsOf(&busyRun{s, func() { add(2) }}).DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := runs.GetRun(t.Context(), "r"); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("after the deletion: %v, want it gone", err)
	}
	left, err := s.QueryDocuments(t.Context(), agl.QueryDocumentsParams{Kind: "run_metrics"})
	if err != nil || left.Total != 0 {
		t.Errorf("%d documents of metrics are left, %v", left.Total, err)
	}
}
