package main

import (
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
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

// What a dry run says of an agent that was written for the other way to get tasks leads to keepalive.
func TestTrialOfTheWrongKeepalive(t *testing.T) {
	t.Parallel()
	for name, trial := range map[string]job.DryRunResult{
		"reads tasks and gets none": {Outcome: agl.Outcome{Kind: agl.OutcomeOK}, Mask: algorithm.MaskMissingReward},
		"does not reply":            {Outcome: agl.Outcome{Kind: agl.OutcomeTimeout, Message: "the attempt's timeout has passed"}},
	} {
		if err := failure(&trial); err == nil || !strings.Contains(err.Error(), "keepalive") {
			t.Errorf("an agent that %s: got %v, want a word of keepalive", name, err)
		}
	}
	printed := job.DryRunResult{Outcome: agl.Outcome{Kind: agl.OutcomeOK}, Mask: algorithm.MaskMissingReward, LastOutput: "42"}
	if err := failure(&printed); err == nil || strings.Contains(err.Error(), "keepalive") {
		t.Errorf("an agent that has printed its answer: got %v, want no word of keepalive", err)
	}
}
