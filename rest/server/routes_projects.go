package server

import (
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/rest/project"
)

// Placeholder of routes.
const projectName = "project"

// projects manages the projects besides the server's own store.
type projects struct{ registry *project.Registry }

// missing is the error of a server without projects, and nil otherwise.
func (s projects) missing() error {
	return unimplementedUnless(s.registry != nil, "there are no projects here: if the URL ends in /p/NAME, leave that out, and if not, start the server with agl store --projects")
}

func (s projects) create(x *exchange, body *wire.NewProject) error {
	created, err := s.registry.Create(x.context(), body.Name, x.caller.By(), body.Limits)
	if err == nil {
		x.log.Info("project created", "project", created.Name, "by", created.CreatedBy, "from", access.From(x.request))
	}
	return x.answerJSON(http.StatusCreated, &created, err)
}

func (s projects) list(x *exchange) error {
	found, err := s.registry.List(x.context())
	return x.answerJSON(http.StatusOK, map[string][]project.Project{"items": found}, err)
}

func (s projects) update(x *exchange, body *wire.UpdateProject) error {
	change := project.Change{By: x.caller.By(), Archived: body.Archived, Force: body.Force}
	if body.Limits != nil {
		change.Limits = body.Limits.Apply
	}
	updated, err := s.registry.Update(x.context(), x.request.PathValue(projectName), change)
	if err == nil {
		x.log.Info("project updated", "project", updated.Name, "archived", updated.ArchiveTime != nil, "limits", updated.Limits, "by", x.caller.By(), "from", access.From(x.request))
	}
	return x.answerJSON(http.StatusOK, &updated, err)
}
