package wire

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Audit is the path of what callers have done.
const Audit = "/audit"

// Act is the body that posts to [Audit]: what the caller has done at another server.
type Act struct {
	From   string `json:"from"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Status int    `json:"status"`
}

// UnmarshalJSONFrom refuses members that it does not know, and what is no act.
func (a *Act) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Act
	if err := strict(json.UnmarshalDecode(dec, (*plain)(a), json.RejectUnknownMembers(true)), "from, method, path and status"); err != nil {
		return err
	}
	switch {
	case a.Method == "" || len(a.Method) > maxMethod:
		return agl.Errorf(agl.CodeInvalid, "method: got %.40q, must have 1 to %d bytes", a.Method, maxMethod)
	case !strings.HasPrefix(a.Path, "/"):
		return agl.Errorf(agl.CodeInvalid, "path: got %.40q, must begin with /", a.Path)
	case a.Status < http.StatusOK || a.Status >= http.StatusBadRequest:
		return agl.Errorf(agl.CodeInvalid, "status: got %d, must be 200 to 399: what has failed is no act", a.Status)
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
	Name string `json:"name"`
}

// UnmarshalJSONFrom refuses members that it does not know.
func (p *NewProject) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewProject
	return strict(json.UnmarshalDecode(dec, (*plain)(p), json.RejectUnknownMembers(true)), "name")
}

// UpdateProject is the body that posts to [Project].
type UpdateProject struct {
	Archived bool `json:"archived"`
}

// UnmarshalJSONFrom refuses members that it does not know.
func (p *UpdateProject) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain UpdateProject
	return strict(json.UnmarshalDecode(dec, (*plain)(p), json.RejectUnknownMembers(true)), "archived")
}

func strict(err error, allowed string) error {
	if err == nil {
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "body: %w; allowed is %s", err, allowed)
}
