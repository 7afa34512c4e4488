package access

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"

	"github.com/agl-go/agl"
)

// Limits are the budget of a key. Zero is unlimited.
type Limits struct {
	MaxTokens   int64   `json:"max_tokens,omitzero"` // of prompts and replies, over the life of the key
	MaxUSD      float64 `json:"max_usd,omitzero"`    // by the prices of the models, over the life of the key
	MaxRollouts int64   `json:"max_rollouts,omitzero"`
	MaxBytes    int64   `json:"max_bytes,omitzero"` // of the bodies of requests to the store
	MaxCalls    int64   `json:"max_calls,omitzero"` // of models, running at once
}

// LogValue shows the limits that are set.
func (l Limits) LogValue() slog.Value {
	set := slices.DeleteFunc([]slog.Attr{
		slog.Int64("max_tokens", l.MaxTokens), slog.Float64("max_usd", l.MaxUSD), slog.Int64("max_rollouts", l.MaxRollouts),
		slog.Int64("max_bytes", l.MaxBytes), slog.Int64("max_calls", l.MaxCalls),
	}, func(a slog.Attr) bool { return a.Value.String() == "0" })
	if len(set) == 0 {
		return slog.StringValue("none")
	}
	return slog.GroupValue(set...)
}

// ProjectAccount is the account of a project, in place of a key's id. Callers without limits of their own are charged
// to it.
const ProjectAccount = "project"

// maxUSD bounds a budget, so that it fits an int64 in billionths.
const maxUSD = 1e9

// Validate returns an error of CodeInvalid for the first limit that is out of range.
func (l *Limits) Validate() error {
	for _, f := range [...]struct {
		name  string
		value int64
	}{{"max_tokens", l.MaxTokens}, {"max_rollouts", l.MaxRollouts}, {"max_bytes", l.MaxBytes}, {"max_calls", l.MaxCalls}} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "limits.%s: got %d, must not be negative; 0 is unlimited", f.name, f.value)
		}
	}
	if !(l.MaxUSD >= 0 && l.MaxUSD <= maxUSD) {
		return agl.Errorf(agl.CodeInvalid, "limits.max_usd: got %v, must be between 0 (unlimited) and %.0f", l.MaxUSD, maxUSD)
	}
	return nil
}

// amounts returns the limits as amounts, with math.MaxInt64 for unlimited ones.
func (l *Limits) amounts() Amounts {
	a := Amounts{Tokens: l.MaxTokens, NanoUSD: nanoUSD(l.MaxUSD), Rollouts: l.MaxRollouts, Bytes: l.MaxBytes, Calls: l.MaxCalls}
	for _, p := range a.parts() {
		if *p.value == 0 {
			*p.value = math.MaxInt64
		}
	}
	return a
}

// nanoUSD returns billionths of a dollar, rounded up.
func nanoUSD(dollars float64) int64 { return int64(math.Ceil(min(dollars, maxUSD) * 1e9)) }

// Amounts are quantities of what a budget limits.
type Amounts struct {
	Tokens   int64 `json:"tokens,omitzero"`
	NanoUSD  int64 `json:"nano_usd,omitzero"` // billionths of a dollar
	Rollouts int64 `json:"rollouts,omitzero"`
	Bytes    int64 `json:"bytes,omitzero"`
	Calls    int64 `json:"calls,omitzero"` // running at once; they are reserved and never spent
}

type part struct {
	unit  string
	value *int64
}

func (a *Amounts) parts() [5]part {
	return [...]part{{"tokens", &a.Tokens}, {"dollars", &a.NanoUSD}, {"rollouts", &a.Rollouts}, {"bytes", &a.Bytes}, {"calls at once", &a.Calls}}
}

// add adds b, which must not be negative. Sums saturate at math.MaxInt64, so an overflow lets nobody pass a limit.
func (a *Amounts) add(b Amounts) {
	to, from := a.parts(), b.parts()
	for i := range to {
		*to[i].value += min(*from[i].value, math.MaxInt64-*to[i].value)
	}
}

// subtract subtracts b, which is part of a.
func (a *Amounts) subtract(b Amounts) {
	to, from := a.parts(), b.parts()
	for i := range to {
		*to[i].value -= *from[i].value
	}
}

// valid reports whether nothing is negative or so large that sums could overflow.
func (a *Amounts) valid() bool {
	for _, p := range a.parts() {
		if *p.value < 0 || *p.value > math.MaxInt64/4 {
			return false
		}
	}
	return true
}

// lacking returns the index of the first part of need that exceeds what is left of limit, or -1.
func lacking(limit, used, need Amounts) int {
	l, u, n := limit.parts(), used.parts(), need.parts()
	for i := range l {
		if *n[i].value > 0 && *n[i].value > *l[i].value-*u[i].value {
			return i
		}
	}
	return -1
}

// BudgetError says that a budget has no room for a request. Its HTTP status is 429.
type BudgetError struct {
	KeyID       string // or ProjectAccount
	Unit        string // tokens, dollars, rollouts, bytes or calls at once
	Limit, Left int64  // of the unit; billionths of a dollar
	Reserved    int64  // by running requests, which may return a part of it
	Need        int64
}

func (e *BudgetError) Error() string {
	text := func(n int64) string {
		if e.Unit == "dollars" {
			return strconv.FormatFloat(float64(n)/1e9, 'f', -1, 64) // 0.000001, not 1e-06
		}
		return fmt.Sprint(n)
	}
	who := "the key " + e.KeyID
	if e.KeyID == ProjectAccount {
		who = "the project"
	}
	return fmt.Sprintf("%s has a budget of %s %s: %s are left, running requests have reserved %s, and this request may need %s",
		who, text(e.Limit), e.Unit, text(e.Left), text(e.Reserved), text(e.Need))
}

// Fits reports whether the request would fit if running requests returned everything they have reserved.
func (e *BudgetError) Fits() bool { return e.Need <= e.Left+e.Reserved }

// Room reports whether need would fit, in the unit that was lacking, if running requests returned everything they
// have reserved.
func (e *BudgetError) Room(need Amounts) bool {
	for _, p := range need.parts() {
		if p.unit == e.Unit {
			return *p.value <= e.Left+e.Reserved
		}
	}
	return false
}
