package wire

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

// Audit is the path of the audit log.
const Audit = "/audit"

// Act is the body that posts to [Audit]: what the caller did at another server.
type Act struct {
	From   string `json:"from"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

// UnmarshalJSONFrom rejects unknown members, and values that no act has.
func (a *Act) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Act
	if err := strict(dec, (*plain)(a), "from, method, path and status"); err != nil {
		return err
	}
	switch {
	case a.Method == "" || len(a.Method) > maxMethod:
		return agl.Errorf(agl.CodeInvalid, "method: got %.40q, must have 1 to %d bytes", a.Method, maxMethod)
	case !strings.HasPrefix(a.Path, "/"):
		return agl.Errorf(agl.CodeInvalid, "path: got %.40q, must begin with /", a.Path)
	case a.Status < http.StatusOK || a.Status >= http.StatusBadRequest:
		return agl.Errorf(agl.CodeInvalid, "status: got %d, must be 200 to 399: failed requests are not recorded", a.Status)
	}
	return nil
}

// maxMethod bounds the method of a request, in bytes.
const maxMethod = 20

// Projects is the path of the projects of a server.
const Projects = "/projects"

// Project is the path of a project.
func Project(name string) string { return Projects + "/" + name }

// NewProject is the body that posts to [Projects].
type NewProject struct {
	Name   string        `json:"name"`
	Limits access.Limits `json:"limits,omitzero"`
}

// UnmarshalJSONFrom refuses members that it does not know.
func (p *NewProject) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewProject
	return strict(dec, (*plain)(p), "name and limits")
}

// UpdateProject is the body that posts to [Project]. Absent members leave the project as it is.
type UpdateProject struct {
	Archived *bool          `json:"archived,omitzero"`
	Force    bool           `json:"force,omitzero"` // archive it while it is in use, too
	Limits   *UpdatedLimits `json:"limits,omitzero"`
}

// UpdatedLimits changes limits. Absent members leave a limit as it is, and 0 removes it.
type UpdatedLimits struct {
	MaxTokens   *int64   `json:"max_tokens,omitzero"`
	MaxUSD      *float64 `json:"max_usd,omitzero"`
	MaxRollouts *int64   `json:"max_rollouts,omitzero"`
	MaxBytes    *int64   `json:"max_bytes,omitzero"`
	MaxCalls    *int64   `json:"max_calls,omitzero"`
}

// Set makes u the change that sets the limits above 0 in limits, and removes those above 0 in removed.
func (u *UpdatedLimits) Set(limits, removed access.Limits) {
	for _, f := range [...]struct {
		to            **int64
		set, removing int64
	}{
		{&u.MaxTokens, limits.MaxTokens, removed.MaxTokens}, {&u.MaxRollouts, limits.MaxRollouts, removed.MaxRollouts},
		{&u.MaxBytes, limits.MaxBytes, removed.MaxBytes}, {&u.MaxCalls, limits.MaxCalls, removed.MaxCalls},
	} {
		if f.set > 0 || f.removing > 0 {
			*f.to = &f.set
		}
	}
	if limits.MaxUSD > 0 || removed.MaxUSD > 0 {
		u.MaxUSD = &limits.MaxUSD
	}
}

// Apply returns limits with the changes.
func (u *UpdatedLimits) Apply(l access.Limits) access.Limits {
	for _, f := range [...]struct{ from, to *int64 }{{u.MaxTokens, &l.MaxTokens}, {u.MaxRollouts, &l.MaxRollouts}, {u.MaxBytes, &l.MaxBytes}, {u.MaxCalls, &l.MaxCalls}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if u.MaxUSD != nil {
		l.MaxUSD = *u.MaxUSD
	}
	return l
}

// UnmarshalJSONFrom refuses members that it does not know.
func (p *UpdateProject) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain UpdateProject
	return strict(dec, (*plain)(p), "archived, force and limits (max_tokens, max_usd, max_rollouts, max_bytes, max_calls)")
}
