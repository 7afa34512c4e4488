package main

import (
	"context"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/client"
)

type auditCommand struct {
	flags.Store

	Limit  int  `default:"100" placeholder:"N" help:"How many to print at most, 1 to 10000. Default: ${default}."`
	Offset int  `placeholder:"N" help:"How many of the newest to leave out."`
	JSON   bool `help:"Print JSON, one act a line, instead of a table."`
}

func (c *auditCommand) Validate() error {
	const most = 10_000
	if c.Limit < 1 || c.Limit > most || c.Offset < 0 {
		return fmt.Errorf("--limit=%d --offset=%d: the limit must be 1 to %d, the offset not negative", c.Limit, c.Offset, most)
	}
	return nil
}

func (c *auditCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	acts, err := store.ListActs(ctx, c.Limit, c.Offset)
	if err != nil {
		return err
	}
	table := console.Table{Headers: []string{"TIME", "BY", "FROM", "ACT"}, Status: -1}
	return printItems(out, c.JSON, &table, acts, func(a *access.Act) []string {
		from := a.From
		if a.Via != "" {
			from += " via " + a.Via
		}
		return []string{console.Time(agl.Some(a.Time)), console.Dash(a.By), console.Dash(from), console.Dash(a.Method + " " + a.Path)}
	})
}
