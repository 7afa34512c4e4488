// Package project serves several stores behind one address. Each project has a database of its own and is served
// under /p/NAME. Its database is opened by the first request and closed after a while without requests.
//
//	projects := project.NewRegistry(documents, create)
//	host := project.NewHost(project.Config{Registry: projects, Open: open})
//	http.Handle("/p/", host)
//
// A project shares nothing with others: its keys, rollouts and events are in its own database, and its handler sees
// paths without the prefix. The package must not know what a project serves.
package project

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
)

// kind is the kind of the documents that hold projects.
const kind = "project"

// Project describes a project. The JSON form has times in Unix seconds.
type Project struct {
	Name        string         `json:"name"`
	CreateTime  agl.Timestamp  `json:"create_time"`
	CreatedBy   string         `json:"created_by"`
	ArchiveTime *agl.Timestamp `json:"archive_time"` // null if the project is served
	ArchivedBy  string         `json:"archived_by,omitzero"`
	Limits      access.Limits  `json:"limits,omitzero"` // of all callers together
}

// names matches the names of projects, which are also names of files and databases.
var names = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// checkName returns an error of CodeInvalid if name cannot be that of a project.
func checkName(name string) error {
	if !names.MatchString(name) {
		return agl.Errorf(agl.CodeInvalid, "name: got %q, must be 1 to 40 of a-z, 0-9 and -, and not begin with -", name)
	}
	return nil
}

// Registry keeps the list of projects. It is safe for concurrent use, by several servers as well.
type Registry struct {
	documents agl.DocumentStore
	create    func(ctx context.Context, name string) error
	host      atomic.Pointer[Host] // what serves the projects; nil if nothing does
}

// NewRegistry returns the projects that a store keeps as documents. create creates the database of a project unless
// it exists.
func NewRegistry(documents agl.DocumentStore, create func(ctx context.Context, name string) error) *Registry {
	return &Registry{documents: documents, create: create}
}

// Create creates a project; CodeConflict if the name is taken.
func (r *Registry) Create(ctx context.Context, name, by string, limits access.Limits) (Project, error) {
	if err := checkName(name); err != nil {
		return Project{}, err
	}
	if err := limits.Validate(); err != nil {
		return Project{}, err
	}
	if _, err := r.Get(ctx, name); err == nil {
		return Project{}, errExists(name)
	} else if !errors.Is(err, agl.ErrNotFound) {
		return Project{}, err
	}
	if err := r.create(ctx, name); err != nil {
		return Project{}, err
	}
	p := Project{Name: name, CreateTime: agl.TimestampOf(time.Now()), CreatedBy: by, Limits: limits}
	err := r.write(ctx, &p, 0)
	if errors.Is(err, agl.ErrConflict) {
		err = errExists(name)
	}
	return p, err
}

func errExists(name string) error {
	return agl.Errorf(agl.CodeConflict, "name: there is a project %s already", name)
}

// Get returns a project; CodeNotFound.
func (r *Registry) Get(ctx context.Context, name string) (Project, error) {
	p, _, err := r.read(ctx, name)
	return p, err
}

func (r *Registry) read(ctx context.Context, name string) (p Project, version int64, err error) {
	if err := checkName(name); err != nil {
		return Project{}, 0, agl.Errorf(agl.CodeNotFound, "there is no project %q", name)
	}
	p, version, err = agl.ReadDocument[Project](ctx, r.documents, kind, name)
	if errors.Is(err, agl.ErrNotFound) {
		err = agl.Errorf(agl.CodeNotFound, "there is no project %s", name)
	}
	return p, version, err
}

// List returns all projects in the order of their names.
func (r *Registry) List(ctx context.Context) ([]Project, error) {
	return agl.ListDocuments[Project](ctx, r.documents, kind)
}

// maxWrites bounds the attempts to write a document that others change, too.
const maxWrites = 5

// Change says what [Registry.Update] changes. Nil fields change nothing.
type Change struct {
	By string // who makes the change
	// Archived stops serving the project, or serves it again. Its data stays.
	Archived *bool
	// Force stops serving it while it is in use, too.
	Force bool
	// Limits returns the new limits. They apply on every server within a second.
	Limits func(now access.Limits) access.Limits
}

// Update changes a project. A project whose [Tenant.InUse] says that it is in use is archived by Force only.
func (r *Registry) Update(ctx context.Context, name string, c Change) (Project, error) {
	for try := 1; ; try++ {
		p, version, err := r.read(ctx, name)
		if err != nil {
			return p, err
		}
		before := p
		if c.Archived != nil && (p.ArchiveTime != nil) != *c.Archived {
			p.ArchiveTime, p.ArchivedBy = nil, ""
			if *c.Archived {
				if err := r.unused(ctx, name, c.Force); err != nil {
					return before, err
				}
				now := agl.TimestampOf(time.Now())
				p.ArchiveTime, p.ArchivedBy = &now, c.By
			}
		}
		if c.Limits != nil {
			p.Limits = c.Limits(p.Limits)
			if err := p.Limits.Validate(); err != nil {
				return before, err
			}
		}
		if p == before {
			return p, nil
		}
		if err = r.write(ctx, &p, version); !errors.Is(err, agl.ErrConflict) || try == maxWrites {
			return p, err
		}
	}
}

// unused returns an error if a project is in use, unless that does not matter.
func (r *Registry) unused(ctx context.Context, name string, force bool) error {
	host := r.host.Load()
	if host == nil || force {
		return nil
	}
	return host.unused(ctx, name)
}

func (r *Registry) write(ctx context.Context, p *Project, version int64) error {
	return agl.WriteDocument(ctx, r.documents, agl.DocumentWrite{Kind: kind, ID: p.Name, IfVersion: agl.Some(version)}, p)
}
