package main

import (
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/algorithm"
)

// summary is what --summary writes.
type summary struct {
	Seed     uint64                    `json:"seed"`
	Steps    int                       `json:"steps"`
	Rollouts int                       `json:"rollouts"`
	Spans    int                       `json:"spans"`
	Seconds  float64                   `json:"seconds"`
	Masked   map[algorithm.Mask]int    `json:"masked"`
	Before   *evaluation               `json:"before"`
	After    *evaluation               `json:"after"`
	Forms    map[string]algorithm.Rate `json:"forms"` // after
}

type evaluation struct {
	PassRate float64    `json:"pass_rate"`
	N        int        `json:"n"`
	CI95     [2]float64 `json:"ci95"`
}

func newEvaluation(r *algorithm.Report) *evaluation {
	if r == nil {
		return nil
	}
	return &evaluation{PassRate: r.PassRate, N: r.N, CI95: r.CI95}
}

func writeSummary(opt options, s algorithm.Summary, elapsed time.Duration) error {
	out := summary{
		Seed: opt.Seed, Steps: s.Step, Rollouts: s.Totals.Rollouts, Spans: s.Totals.Spans, Seconds: elapsed.Seconds(),
		Masked: s.Totals.Masked, Before: newEvaluation(s.Before), After: newEvaluation(s.After),
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
