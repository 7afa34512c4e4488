package main

import (
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/algorithm"
)

// summary is the content of the file that --summary writes.
type summary struct {
	Seed     uint64                    `json:"seed"`
	Steps    int                       `json:"steps"`
	Rollouts int                       `json:"rollouts"`
	Spans    int                       `json:"spans"`
	Seconds  float64                   `json:"seconds"`
	Masked   map[algorithm.Mask]int    `json:"masked"`
	Before   *algorithm.Rate           `json:"before"`
	After    *algorithm.Rate           `json:"after"`
	Forms    map[string]algorithm.Rate `json:"forms"` // after
}

func rateOf(r *algorithm.Report) *algorithm.Rate {
	if r == nil {
		return nil
	}
	return &r.Rate
}

func writeSummary(opt options, s algorithm.Summary, elapsed time.Duration) error {
	out := summary{
		Seed: opt.Seed, Steps: s.Step, Rollouts: s.Totals.Rollouts, Spans: s.Totals.Spans, Seconds: elapsed.Seconds(),
		Masked: s.Totals.Masked, Before: rateOf(s.Before), After: rateOf(s.After),
	}
	if s.After != nil {
		out.Forms = s.After.Forms
	}
	doc, err := json.Marshal(out, jsontext.WithIndent("  "), json.Deterministic(true))
	if err != nil {
		return err
	}
	return os.WriteFile(opt.Summary, append(doc, '\n'), 0o644)
}
