package client

import (
	"context"
	"net/http"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/rest/project"
)

// CreateProject creates a project; CodeConflict if the name is taken.
func (c *Client) CreateProject(ctx context.Context, name string, limits access.Limits) (project.Project, error) {
	return c.project(ctx, "CreateProject", wire.Projects, &wire.NewProject{Name: name, Limits: limits})
}

// ArchiveProjectParams are the arguments of [Client.ArchiveProject].
type ArchiveProjectParams struct {
	Name  string
	Undo  bool // serve it again
	Force bool // while runs or attempts are under way in it, too, whose results are lost
}

// ArchiveProject stops serving a project, or serves it again. Its data stays. CodeIllegalState while it is in use, without
// Force.
func (c *Client) ArchiveProject(ctx context.Context, p ArchiveProjectParams) (project.Project, error) {
	archived := !p.Undo
	return c.project(ctx, "ArchiveProject", wire.Project(wire.Segment(p.Name)), &wire.UpdateProject{Archived: &archived, Force: p.Force})
}

// LimitProject sets the limits of a project that are above 0 in limits, and removes those that are above 0 in
// removed.
func (c *Client) LimitProject(ctx context.Context, name string, limits, removed access.Limits) (project.Project, error) {
	var change wire.UpdatedLimits
	change.Set(limits, removed)
	return c.project(ctx, "LimitProject", wire.Project(wire.Segment(name)), &wire.UpdateProject{Limits: &change})
}

func (c *Client) project(ctx context.Context, operationName, path string, v any) (project.Project, error) {
	return send[project.Project](ctx, c, operation{name: operationName, path: path, unsent: true}, v)
}

// ListProjects returns all projects in the order of their names.
func (c *Client) ListProjects(ctx context.Context) ([]project.Project, error) {
	found, err := call[map[string][]project.Project](ctx, c, operation{name: "ListProjects", method: http.MethodGet, path: wire.Projects})
	return found["items"], err
}
