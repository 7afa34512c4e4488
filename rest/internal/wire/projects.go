package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Audit is the path of what callers have done.
const Audit = "/audit"

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
