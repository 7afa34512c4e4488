package main

import (
	"strings"
	"testing"

	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/job"
)

func TestTripletsText(t *testing.T) {
	t.Parallel()
	for want, trial := range map[string]job.DryRunResult{
		"none: no model call was recorded":   {},
		"none: no token ids were recorded, ": {Usage: trainer.Usage{Calls: 1}}, // of a text_only backend
	} {
		if got := tripletsText(&trial); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
