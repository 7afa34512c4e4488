package grpo_test

import (
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// noted are the rollouts that say why they were dropped, by reason.
func noted(t *testing.T, w *world) map[string]int {
	t.Helper()
	page, err := w.store.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, r := range page.Items {
		var tag struct {
			Run     string `json:"run"`
			Dropped string `json:"dropped"`
		}
		if err := rawjson.Unmarshal(r.Metadata, &tag); err != nil {
			t.Fatal(err)
		}
		if tag.Run == "" {
			t.Errorf("the metadata of rollout %s are %s, want those of before, too", r.RolloutID, r.Metadata)
		}
		if tag.Dropped != "" {
			found[tag.Dropped]++
		}
	}
	return found
}

// checkNoted compares what the rollouts say with how many the run reported, and that some were dropped.
func checkNoted(t *testing.T, w *world, reason string, reported int) {
	t.Helper()
	// What was dropped after the last step is in no report.
	if got := noted(t, w)[reason]; got < reported || reported == 0 {
		t.Errorf("%d rollouts say that they were dropped as %s, the run reports %d", got, reason, reported)
	}
}
