package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/agl-go/agl"
)

const (
	maxModels         = 100
	maxCallsPerMinute = 10_000 // of a subject; the start of each call is kept
)

// Rules restrict model calls. The zero value allows all.
type Rules struct {
	Models []string `json:"models,omitzero"` // that may be called; empty allows all
	// CallsPerMinute bounds the calls that start within any 60 seconds, on each proxy; 0 means unlimited.
	CallsPerMinute int64 `json:"calls_per_minute,omitzero"`
}

// None reports whether the rules allow all calls.
func (r *Rules) None() bool { return len(r.Models) == 0 && r.CallsPerMinute == 0 }

// Validate returns an error of CodeInvalid for the first rule that is out of range. prefix precedes the names of
// members in the error.
func (r *Rules) Validate(prefix string) error {
	if len(r.Models) > maxModels {
		return agl.Errorf(agl.CodeInvalid, "%smodels: got %d, must be at most %d", prefix, len(r.Models), maxModels)
	}
	for i, name := range r.Models {
		if name == "" || len(name) > maxName || !utf8.ValidString(name) {
			return agl.Errorf(agl.CodeInvalid, "%smodels[%d]: got %.100q, must have 1 to %d bytes of UTF-8", prefix, i, name, maxName)
		}
	}
	if r.CallsPerMinute < 0 || r.CallsPerMinute > maxCallsPerMinute {
		return agl.Errorf(agl.CodeInvalid, "%scalls_per_minute: got %d, must be between 0 (unlimited) and %d", prefix, r.CallsPerMinute, maxCallsPerMinute)
	}
	return nil
}

// Allows reports whether a model may be called.
func (r *Rules) Allows(model string) bool {
	return len(r.Models) == 0 || slices.Contains(r.Models, model)
}

// RuleError says which rule a call breaks.
type RuleError struct {
	// Wait is how long to wait until a call is allowed; 0 for a model that is never allowed.
	Wait    time.Duration
	message string
}

func (e *RuleError) Error() string { return e.message }

// Subject is what rules apply to: a key or an attempt.
type Subject struct {
	ID    string // different for each subject of a [Rates]
	Name  string // in errors
	Rules Rules
}

// Rates count the calls of the last minute. The zero value is ready to use.
type Rates struct {
	mu    sync.Mutex
	calls map[string][]time.Time // when they began, by the subject, the oldest first
	swept time.Time
}

const perRate = time.Minute

// Admit counts a call that starts now. If the subject may not make it, it is not counted, and the error is a
// *RuleError.
func (r *Rates) Admit(of *Subject, model string, now time.Time) error {
	if !of.Rules.Allows(model) {
		return &RuleError{message: fmt.Sprintf("%s may not call the model %.100q, only %s", of.Name, model, strings.Join(of.Rules.Models, ", "))}
	}
	limit := of.Rules.CallsPerMinute
	if limit == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(now)
	calls := recent(r.calls[of.ID], now)
	if over := int64(len(calls)) - limit; over >= 0 {
		wait := calls[over].Add(perRate).Sub(now)
		return &RuleError{wait, fmt.Sprintf("%s may make %d calls a minute; the next in %s", of.Name, limit, wait.Round(time.Millisecond))}
	}
	r.calls[of.ID] = append(calls, now)
	return nil
}

// recent drops the calls at the front that are older than a minute. Calls that were noted out of order are dropped
// with those before them.
func recent(calls []time.Time, now time.Time) []time.Time {
	first := 0
	for first < len(calls) && now.Sub(calls[first]) >= perRate {
		first++
	}
	return calls[first:]
}

// sweep forgets subjects without a call in the last minute. It runs once a minute.
func (r *Rates) sweep(now time.Time) {
	if r.calls == nil {
		r.calls = map[string][]time.Time{}
	}
	if now.Sub(r.swept) < perRate {
		return
	}
	r.swept = now
	maps.DeleteFunc(r.calls, func(_ string, calls []time.Time) bool { return now.Sub(calls[len(calls)-1]) >= perRate })
}
