package main

import (
	"context"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/trainer/report"
)

type reportCommand struct {
	File string `arg:"" placeholder:"FILE.html" help:"The new file, or - for standard output."`

	flags.StoreOrRun

	ID string `name:"run" default:"latest" placeholder:"RUN" help:"Id of the run; ${default} is the one that started last."`
}

// Validate is called by kong. The folder may come first.
func (c *reportCommand) Validate() error {
	if err := c.Order(&c.File, "", "file"); err != nil {
		return err
	}
	return needsFile(c.File)
}

func (c *reportCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	runs, err := runsOf(store)
	if err != nil {
		return c.Wrap(err)
	}
	run, err := (&runsShowCommand{ID: c.ID}).find(ctx, runs)
	if err != nil {
		return c.Wrap(err)
	}
	page, err := report.Run(ctx, report.Params{Store: store, Runs: runs, Run: run, Input: redacted})
	if err != nil {
		return c.Wrap(err)
	}
	err = out.WriteFile(ctx, c.File, func(w io.Writer) error {
		_, err := w.Write(page)
		return err
	})
	if err != nil || console.IsOutput(c.File) {
		return err
	}
	return out.Printf("%s: run %s, %s\n", c.File, console.Printable(run.RunID), console.Bytes(int64(len(page))))
}

// redacted is an input without the keys in it.
func redacted(input jsontext.Value) jsontext.Value {
	safe, err := console.RedactJSON(input)
	if err != nil {
		return jsontext.Value(`"` + console.Redacted + `"`) // it may contain a key
	}
	return safe
}
