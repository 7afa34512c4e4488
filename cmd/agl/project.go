package main

import (
	"context"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/project"
)

type projectCommand struct {
	Create  projectCreateCommand  `cmd:"" help:"Make a project: a store of its own at /p/NAME."`
	List    projectListCommand    `cmd:"" help:"List the projects of a server."`
	Archive projectArchiveCommand `cmd:"" help:"End the service of projects within a second. Their data stays."`
}

type projectCreateCommand struct {
	flags.Store

	Name string `arg:"" help:"Its name: a-z, 0-9 and -, at most 40."`
}

func (projectCreateCommand) Help() string {
	return "Needs a server that runs with agl store --projects, and its token or a key with the scope admin.\n\n" +
		"Example:\n  agl project create search\n  agl key create gpu-7 --scope runner --store http://localhost:4747/p/search"
}

func (c *projectCreateCommand) run(ctx context.Context, out *console.Console) error {
	return withClient(&c.Store, func(store *client.Client) error {
		created, err := store.CreateProject(ctx, c.Name)
		if err != nil {
			return err
		}
		return out.Printf("%s/p/%s\n", strings.TrimRight(string(c.StoreURL), "/"), created.Name)
	})
}

type projectListCommand struct {
	flags.Store

	All  bool `help:"Also those that are archived."`
	JSON bool `help:"Print JSON, one project a line, instead of a table."`
}

func (projectListCommand) Help() string { return "Example:\n  agl project list --all" }

// projectDocument is the JSON form of a project.
type projectDocument struct{ project.Project }

func (p *projectDocument) AppendJSON(dst []byte) []byte {
	doc, err := json.Marshal(&p.Project)
	if err != nil { // it was read from JSON
		doc = []byte("null")
	}
	return append(dst, doc...)
}

func (c *projectListCommand) run(ctx context.Context, out *console.Console) error {
	return withClient(&c.Store, func(store *client.Client) error {
		found, err := store.ListProjects(ctx)
		if err != nil {
			return err
		}
		table := console.Table{Headers: []string{"PROJECT", "STATE", "CREATED", "BY"}, Status: 1, Drop: []string{"BY"}}
		for i := range found {
			p := &found[i]
			state := "active"
			if p.ArchiveTime != nil {
				state = "archived"
			}
			switch {
			case !c.All && p.ArchiveTime != nil:
			case c.JSON:
				if err := out.JSON(&projectDocument{*p}); err != nil {
					return err
				}
			default:
				table.Rows = append(table.Rows, []string{console.Dash(p.Name), state, console.Time(agl.Some(p.CreateTime)), console.Dash(p.CreatedBy)})
			}
		}
		if c.JSON {
			return nil
		}
		return table.Print(out)
	})
}

type projectArchiveCommand struct {
	flags.Store

	Projects []string `arg:"" name:"project" help:"Names of projects."`
	Undo     bool     `help:"Serve them again."`
}

func (projectArchiveCommand) Help() string {
	return "Requests are then answered 404, and the database is closed. Nothing is deleted.\n\nExample:\n  agl project archive search\n  agl project archive --undo search"
}

func (c *projectArchiveCommand) run(ctx context.Context, out *console.Console) error {
	return withClient(&c.Store, func(store *client.Client) error {
		for _, name := range c.Projects {
			p, err := store.ArchiveProject(ctx, name, !c.Undo)
			if err != nil {
				return err
			}
			state := "active"
			if p.ArchiveTime != nil {
				state = "archived"
			}
			if err := out.Printf("%s  %s\n", p.Name, state); err != nil {
				return err
			}
		}
		return nil
	})
}
