package apo

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Report is what a search found, and report.json.
type Report struct {
	// Run is in the ids of the search's resources.
	Run string `json:"run"`
	// Best is the candidate to use: the seed unless Improved.
	Best Candidate `json:"best"`
	// Seed is the initial resources.
	Seed Candidate `json:"seed"`
	// Improved is true when the interval of Gain lies above 0. It is false, and
	// Best the leader so far, while the search goes on.
	Improved bool `json:"improved"`
	// Compared is the ResourcesID of the candidate that was compared with the seed
	// in the end; empty while the search goes on and when it found nothing better.
	Compared string `json:"compared"`
	// Gain is that of Compared over the seed, by fresh rollouts of the validation
	// dataset.
	Gain Gain `json:"gain"`
	// Finished is true once the final comparison was made.
	Finished bool `json:"finished"`
	// OutOfBudget is true when the budget ended the search.
	OutOfBudget bool    `json:"out_of_budget"`
	Rounds      []Round `json:"rounds"`
	// Candidates is the whole history, the seed first.
	Candidates []Candidate `json:"candidates"`
	// Refused counts edits whose text could not take the template's place, and
	// Abandoned the edits that were given up after Config.Attempts of them or of
	// empty critiques, or because no rollout behind them had a score.
	Refused   int `json:"refused"`
	Abandoned int `json:"abandoned"`
	// Rollouts counts those that were tried, Masked those of them that count in
	// no score, by reason.
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
	// Spent is what the model calls cost, those of runs before that this one went
	// on from included.
	Spent Spent `json:"spent"`
}

// Candidate is a bundle of prompts that was tried.
type Candidate struct {
	// ResourcesID names the bundle in the store.
	ResourcesID string `json:"resources_id"`
	// Parent is the ResourcesID of the candidate that was edited; empty for the seed.
	Parent string `json:"parent,omitzero"`
	// Round in which it was made, from 1; 0 for the seed.
	Round int `json:"round"`
	// Edited is the name of the template that differs from the parent's.
	Edited string `json:"edited,omitzero"`
	// Critique is what the edit answers.
	Critique string `json:"critique,omitzero"`
	// Prompts are the templates of the bundle.
	Prompts []NamedPrompt `json:"prompts"`
	// Resources is the whole bundle.
	Resources agl.Resources `json:"-"`
	// Score is the mean reward on the validation tasks of the last round that it
	// took part in; null when there is none.
	Score agl.Null[float64] `json:"score"`
	// Gain is that over the parent, on the validation tasks of the round in which it
	// was made; zero for the seed.
	Gain Gain `json:"gain,omitzero"`
	// Validation is the mean reward on the whole validation dataset; null when it
	// never led a round.
	Validation agl.Null[float64] `json:"validation"`
}

// Round is what happened in a round.
type Round struct {
	// Round counts from 1.
	Round int `json:"round"`
	// Candidates is how many new ones the round made.
	Candidates int `json:"candidates"`
	// Beam is the ResourcesIDs that go on, the leader first.
	Beam []string `json:"beam"`
	// Gain of the leader over the best before, on the whole validation dataset;
	// zero when they are the same, or that had not been validated.
	Gain Gain `json:"gain"`
	// Best is the ResourcesID of the best after the round.
	Best string `json:"best"`
	// Spent up to here.
	Spent Spent `json:"spent"`
}

const reportFile = "report.json"

// writeReport replaces report.json.
func (s *search) writeReport() error {
	r := &s.report
	r.Run = s.journal.header.Run
	r.Spent = s.journal.spent(math.MaxInt)
	r.Rollouts, r.Masked = s.journal.tally()
	r.Seed, r.Best = *s.seed, *s.best
	r.Candidates = make([]Candidate, len(s.candidates))
	for i, c := range s.candidates {
		r.Candidates[i] = *c
	}
	if s.cfg.OutDir == "" {
		return nil
	}
	data, err := json.Marshal(r, json.Deterministic(true), jsontext.Multiline(true))
	if err == nil {
		err = algorithm.WriteFileAtomic(filepath.Join(s.cfg.OutDir, reportFile), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
