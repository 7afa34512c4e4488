package apo_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// The run in the store has the candidates of the report, and keeps what else is in its metadata.
func TestCandidatesInStore(t *testing.T) {
	t.Parallel()
	w, st := apotest.Slope(), memorytest.Open(t)
	serve(t, st, w.Agent)
	cfg := config(3)
	cfg.RunID = "ru-1"
	runs := agl.RunsOf(st)
	if _, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: cfg.RunID, Metadata: []byte(`{"describe":"a test"}`)}); err != nil {
		t.Fatal(err)
	}
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), w.Input(st)); err != nil {
		t.Fatal(err)
	}
	run, err := runs.GetRun(t.Context(), cfg.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Describe string     `json:"describe"`
		Search   apo.Search `json:"search"`
	}
	if err := rawjson.Unmarshal(run.Metadata, &got); err != nil || got.Describe != "a test" {
		t.Fatalf("metadata %s, error %v", run.Metadata, err)
	}
	report := a.Report()
	want := apo.Search{
		Best: report.Best.ResourcesID, Improved: report.Improved, Finished: true, Compared: report.Compared, Gain: report.Gain,
		Beam: report.Rounds[len(report.Rounds)-1].Beam, Candidates: report.Candidates,
	}
	for i := range want.Candidates {
		c := &want.Candidates[i]
		if _, err := st.GetResources(t.Context(), agl.GetResourcesParams{ResourcesID: c.ResourcesID}); err != nil {
			t.Error(err)
		}
		c.Prompts, c.Resources = nil, nil
		if short := got.Search.Candidates[i].Critique; strings.HasPrefix(c.Critique, strings.TrimSuffix(short, "…")) {
			c.Critique = short
		}
	}
	if diff := cmp.Diff(want, got.Search); diff != "" || len(got.Search.Candidates) < 4 {
		t.Errorf("search (-report +store):\n%s", diff)
	}
}
