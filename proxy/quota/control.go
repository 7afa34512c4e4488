// Package quota enforces the control of a rollout: the members that are set in every
// request, those that are forbidden, and the budget of calls, tokens and seconds of
// each attempt.
//
//	q := quota.New(quota.Control{Budget: quota.Budget{Calls: 50}})
//	control := q.Of(rolloutID)
//	body, err := control.Apply(body)                                   // an *openai.Error for a forbidden member
//	account, err := q.Begin(control, rolloutID, attemptID, time.Now()) // a *SpentError when nothing is left
//	err = account.Charge(tokens)                                       // a *SpentError when this call exceeds the budget
//
// A budget belongs to an attempt: a retried rollout starts with a full one.
//
// The package sees request bodies and counts. It must not know how a call is sent,
// answered or recorded.
package quota

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// Control says what the calls of a rollout may do. The zero value changes nothing
// and limits nothing.
type Control struct {
	// Force holds members that are set in every request body, whatever the agent sent.
	Force jsontext.Value `json:"force,omitzero"`
	// Default holds members that are set in bodies where they are absent or null.
	Default jsontext.Value `json:"default,omitzero"`
	// Forbid names members of request bodies. A call that has one of them is refused
	// with 400, unless its value is null.
	Forbid []string `json:"forbid,omitzero"`
	// Rules say which models each attempt may ask for, and how often.
	access.Rules
	// Budget limits what each attempt may spend.
	Budget Budget `json:"budget,omitzero"`
}

// Validate reports what is wrong with a control: CodeInvalid, with the field, the
// value and what is allowed.
func (c *Control) Validate() error {
	const field = "control"
	for _, f := range [...]struct {
		name  string
		value jsontext.Value
	}{{"force", c.Force}, {"default", c.Default}} {
		if f.value != nil && !openai.ValidObject(f.value) {
			return agl.Errorf(agl.CodeInvalid, "%s.%s: got %s, must be an object", field, f.name, f.value)
		}
	}
	for i, name := range c.Forbid {
		if name == "" || name == "model" || name == "messages" || name == "stream" {
			return agl.Errorf(agl.CodeInvalid, "%s.forbid[%d]: got %q, must be a sampling parameter", field, i, name)
		}
	}
	if err := c.Rules.Validate(field + "."); err != nil {
		return err
	}
	b := &c.Budget
	if b.Calls < 0 || b.Tokens < 0 || b.Seconds < 0 {
		return agl.Errorf(agl.CodeInvalid, "%s.budget: got %d calls, %d tokens, %v seconds, none must be negative", field, b.Calls, b.Tokens, b.Seconds)
	}
	if b.Over != OverError && b.Over != OverLength {
		return agl.Errorf(agl.CodeInvalid, "%s.budget.over: got %q, must be empty or %q", field, string(b.Over), OverLength)
	}
	return nil
}

// clone returns a deep copy: the caller may change the original later.
func (c *Control) clone() *Control {
	copied := *c
	copied.Force, copied.Default, copied.Forbid = c.Force.Clone(), c.Default.Clone(), slices.Clone(c.Forbid)
	copied.Models = slices.Clone(c.Models)
	return &copied
}

// Apply returns a request body with the control applied, or body itself if there
// is nothing to change or body is not an object. The error is an *openai.Error
// for a forbidden member.
func (c *Control) Apply(body []byte) ([]byte, error) {
	if len(c.Force)+len(c.Default)+len(c.Forbid) == 0 {
		return body, nil
	}
	var (
		out       = rawjson.NewObject(make([]byte, 0, len(body)+len(c.Force)+len(c.Default)))
		given     = make(map[string]bool)
		forbidden string
	)
	forced, defaults := names(c.Force), names(c.Default)
	complete := openai.Members(body, func(name, value []byte) {
		plain := rawjson.UnquoteName(name)
		if string(value) != "null" {
			given[strings.ToLower(plain)] = true
			if forbidden == "" && holds(c.Forbid, plain) {
				forbidden = plain
			}
		} else if holds(defaults, plain) {
			return
		}
		if !holds(forced, plain) {
			out.Member(name, value)
		}
	})
	if !complete {
		return body, nil
	}
	if forbidden != "" {
		e := openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "parameter_forbidden",
			fmt.Sprintf("the parameter %q may not be set in calls of this rollout", forbidden))
		e.Param = forbidden
		return nil, e
	}
	openai.Members(c.Force, out.Member)
	openai.Members(c.Default, func(name, value []byte) {
		if plain := rawjson.UnquoteName(name); !given[strings.ToLower(plain)] && !holds(forced, plain) {
			out.Member(name, value)
		}
	})
	if len(out) == len("{") {
		return body, nil
	}
	return out.End(), nil
}

// holds reports whether a name is in a list, ignoring case as some servers do.
func holds(list []string, name string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, name) })
}

// names returns the names of an object's members.
func names(object []byte) []string {
	var list []string
	openai.Members(object, func(name, _ []byte) { list = append(list, rawjson.UnquoteName(name)) })
	return list
}
