package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/project"
)

type projectCommand struct {
	Create  projectCreateCommand  `cmd:"" help:"Make a project: a store of its own at /p/NAME."`
	List    projectListCommand    `cmd:"" help:"List the projects of a server."`
	Limit   projectLimitCommand   `cmd:"" help:"Change the budgets of a project, which all its callers share."`
	Archive projectArchiveCommand `cmd:"" help:"End the service of projects within a second. Their data stays."`
}

type projectCreateCommand struct {
	flags.Store
	flags.Limits

	Name string `arg:"" help:"Its name: a-z, 0-9 and -, at most 40."`
}

func (c *projectCreateCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	created, err := store.CreateProject(ctx, c.Name, c.Limits.Limits())
	if err != nil {
		return err
	}
	return out.Printf("%s/p/%s\n", strings.TrimRight(string(c.StoreURL), "/"), created.Name)
}

type projectLimitCommand struct {
	flags.Store
	flags.Limits

	Name   string   `arg:"" help:"Its name."`
	Remove []string `placeholder:"LIMIT" help:"Remove this limit: tokens, usd, calls, rollouts or bytes; repeat it or separate several by commas."`

	removed access.Limits
}

func (c *projectLimitCommand) Validate() error {
	for _, name := range c.Remove {
		limit := map[string]*int64{"tokens": &c.removed.MaxTokens, "calls": &c.removed.MaxCalls, "rollouts": &c.removed.MaxRollouts, "bytes": &c.removed.MaxBytes}[name]
		switch {
		case name == "usd":
			c.removed.MaxUSD = 1
		case limit != nil:
			*limit = 1
		default:
			return fmt.Errorf("--remove: got %q, must be tokens, usd, calls, rollouts or bytes", name)
		}
	}
	return nil
}

func (c *projectLimitCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	p, err := c.change(ctx, store)
	if err != nil {
		return err
	}
	return out.Printf("%s  %s\n", p.Name, cmp.Or(limitsText(&p.Limits, nil), "no limits"))
}

// change returns the project with its new limits. Without any it only reads the project, so that the audit has no change that nobody made.
func (c *projectLimitCommand) change(ctx context.Context, store *client.Client) (project.Project, error) {
	limits := c.Limits.Limits()
	if limits != (access.Limits{}) || c.removed != (access.Limits{}) {
		return store.LimitProject(ctx, c.Name, limits, c.removed)
	}
	found, err := store.ListProjects(ctx)
	if err != nil {
		return project.Project{}, err
	}
	i := slices.IndexFunc(found, func(p project.Project) bool { return p.Name == c.Name })
	if i < 0 {
		return project.Project{}, agl.Errorf(agl.CodeNotFound, "there is no project %s", c.Name)
	}
	return found[i], nil
}

type projectListCommand struct {
	flags.Store

	All  bool `help:"Also those that are archived."`
	JSON bool `help:"Print JSON, one project a line, instead of a table."`
}

func (c *projectListCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	found, err := store.ListProjects(ctx)
	if err != nil {
		return err
	}
	table := console.Table{Headers: []string{"PROJECT", "STATE", "CREATED", "BY", "LIMITS"}, Status: 1, Drop: []string{"BY"}}
	found = slices.DeleteFunc(found, func(p project.Project) bool { return !c.All && p.ArchiveTime != nil })
	return printItems(out, c.JSON, &table, found, func(p *project.Project) []string {
		return []string{console.Dash(p.Name), projectState(p), console.Time(agl.Some(p.CreateTime)), console.Dash(p.CreatedBy), console.Dash(limitsText(&p.Limits, nil))}
	})
}

func projectState(p *project.Project) string {
	if p.ArchiveTime != nil {
		return "archived"
	}
	return "active"
}

type projectArchiveCommand struct {
	flags.Store

	Projects []string `arg:"" name:"project" help:"Names of projects."`
	Undo     bool     `help:"Serve them again."`
	Force    bool     `help:"Also while runs or attempts are under way, whose results are then lost."`
}

func (c *projectArchiveCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	var failed []error
	for _, name := range c.Projects { // each that can be, whatever is wrong with another
		p, err := store.ArchiveProject(ctx, client.ArchiveProjectParams{Name: name, Undo: c.Undo, Force: c.Force})
		if err == nil {
			err = out.Printf("%s  %s\n", p.Name, projectState(&p))
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
