package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/archive"
	"github.com/agl-go/agl/store/driver"
)

type dbExportCommand struct {
	databaseFlag
	File string `arg:"" help:"The new file, or - for standard output."`
}

func (c *dbExportCommand) run(ctx context.Context, out *console.Console) error {
	return c.with(ctx, func(db driver.Database) (err error) {
		var counts archive.Counts
		err = out.WriteFile(ctx, c.File, func(w io.Writer) (err error) {
			counts, err = archive.Export(ctx, db, &meteredWriter{meter: newMeter(out.Err, "exported"), to: w})
			return err
		})
		if err != nil {
			return fmt.Errorf("export %s: %w", c.DB, err)
		}
		return summarize(out, "exported", counts, "to", c.File)
	})
}

type dbImportCommand struct {
	databaseFlag
	File string `arg:"" help:"The file, or - for standard input."`
}

func (c *dbImportCommand) run(ctx context.Context, out *console.Console) (err error) {
	in := os.Stdin
	if c.File != "-" {
		if in, err = os.Open(c.File); err != nil {
			return err
		}
		defer in.Close()
	}
	// What is no export makes no database.
	export, err := archive.Check(in)
	if err != nil {
		return fmt.Errorf("import %s: %w", c.File, err)
	}
	if err := c.unused(ctx); err != nil {
		return fmt.Errorf("import %s: %w", c.File, err)
	}
	// Opening refuses a file that a server uses, and a newer schema, before the rest is read.
	d, err := store.OpenDriver(ctx, c.DB.Name, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(context.WithoutCancel(ctx))) }()
	return c.into(ctx, out, d, export)
}

// into imports an export into the database of a driver.
func (c *dbImportCommand) into(ctx context.Context, out *console.Console, d driver.Driver, export io.Reader) error {
	meter := newMeter(out.Err, "imported")
	counts, err := archive.Import(ctx, d, export, func(done archive.Counts) { meter.at(records(done), done.Bytes) })
	switch {
	case err != nil && ctx.Err() != nil: // main prints no error of an interrupt
		return errors.Join(err, out.Summarize("interrupted, with a part of the export imported; run the same command again to continue"))
	case errors.Is(err, agl.ErrConflict), errors.Is(err, agl.ErrInvalid):
		return fmt.Errorf("import %s: %w", c.File, err)
	case err != nil:
		return fmt.Errorf("import %s: %w; run the same command again to continue", c.File, err)
	}
	return summarize(out, "imported", counts, "from", c.File)
}

// unused refuses a PostgreSQL database that a server uses: it would serve a part of the export, and change what the import then
// finds.
func (c *dbImportCommand) unused(ctx context.Context) error {
	if c.DB.Kind != store.Postgres {
		return nil
	}
	return c.with(ctx, func(db driver.Database) error {
		status, err := db.Status(ctx)
		if err == nil && status.InUse {
			err = agl.Errorf(agl.CodeIllegalState, "a server or another import uses %s: stop it first", status.Location)
		}
		return err
	})
}

// records returns the number of all records.
func records(c archive.Counts) int {
	return c.Resources + c.Workers + c.Rollouts + c.Attempts + c.Spans + c.Sequences + c.Documents + c.Keys
}

func summarize(out *console.Console, verb string, c archive.Counts, preposition, file string) error {
	return out.Summarize("%s %d rollouts, %d attempts, %d spans, %d resources, %d workers (%s) %s %s",
		verb, c.Rollouts, c.Attempts, c.Spans, c.Resources, c.Workers, console.Bytes(c.Bytes), preposition, file)
}

// progressEvery is how often a long transfer reports its progress.
const progressEvery = 5 * time.Second

// meter reports the progress of a transfer.
type meter struct {
	w        io.Writer
	verb     string
	reported time.Time
}

func newMeter(w io.Writer, verb string) *meter { return &meter{w: w, verb: verb, reported: time.Now()} }

// at reports the progress, unless it has done so within progressEvery. It ignores write
// errors: the summary reports a closed standard error.
func (m *meter) at(records int, bytes int64) {
	if time.Since(m.reported) < progressEvery {
		return
	}
	m.reported = time.Now()
	_, _ = fmt.Fprintf(m.w, "agl: %s %d records so far, %s\n", m.verb, records, console.Bytes(bytes))
}

// meteredWriter counts the lines that it passes on.
type meteredWriter struct {
	meter   *meter
	to      io.Writer
	records int
	bytes   int64
}

func (w *meteredWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.records += bytes.Count(p[:n], []byte("\n"))
	w.bytes += int64(n)
	w.meter.at(w.records, w.bytes)
	return n, err
}
