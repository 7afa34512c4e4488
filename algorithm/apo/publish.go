package apo

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// MetadataSearch is the member of a run's metadata in the store that has a [Search].
const MetadataSearch = "search"

// Search is the progress of a search, as stored with its run. The prompts of a candidate are in its resources.
type Search struct {
	Best     string     `json:"best"` // a ResourcesID, like every name of a candidate
	Improved bool       `json:"improved"`
	Finished bool       `json:"finished"`
	Compared string     `json:"compared,omitzero"`
	Gain     Difference `json:"gain,omitzero"` // of Compared over the seed
	Beam     []string   `json:"beam"`
	// Candidates is the whole history, the seed first, without prompts, and with the beginning of a long critique.
	Candidates []Candidate `json:"candidates"`
}

const (
	maxPublished = 1000 // candidates
	maxCritique  = 400  // bytes
)

// publish writes the candidates to the run in the store, where the dashboard shows them. It does nothing if the store has no
// runs, or not this one. A failure is logged and does not end the search.
func (s *search) publish(ctx context.Context) {
	if err := s.writeSearch(ctx); err != nil {
		s.cfg.Logger.WarnContext(ctx, "the candidates were not written to the run in the store", "run_id", s.session.Run, "error", err)
	}
}

func (s *search) writeSearch(ctx context.Context) error {
	runs := agl.RunsOf(s.in.Store)
	if runs == nil {
		return nil
	}
	run, err := runs.GetRun(ctx, s.session.Run)
	switch {
	case errors.Is(err, agl.ErrNotFound), errors.Is(err, agl.ErrUnimplemented):
		return nil
	case err != nil:
		return err
	}
	doc, err := json.Marshal(s.progress())
	if err != nil {
		return err
	}
	_, err = runs.UpdateRun(ctx, agl.UpdateRunParams{RunID: run.RunID, Metadata: rawjson.Set(run.Metadata, MetadataSearch, doc)})
	return err
}

func (s *search) progress() Search {
	out := Search{
		Best: s.best.ResourcesID, Improved: s.report.Improved, Finished: s.report.Finished, Compared: s.report.Compared, Gain: s.report.Gain,
	}
	for _, c := range s.beam {
		out.Beam = append(out.Beam, c.ResourcesID)
	}
	for _, c := range s.candidates[:min(len(s.candidates), maxPublished)] {
		one := *c
		one.Prompts, one.Resources = nil, nil
		if len(one.Critique) > maxCritique {
			one.Critique = strings.ToValidUTF8(one.Critique[:maxCritique], "") + "…"
		}
		out.Candidates = append(out.Candidates, one)
	}
	return out
}
