package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/backend"
)

type dbExportCommand struct {
	operatedFlags
	File string `arg:"" help:"The new file, or - for standard output."`
}

// Help is shown below the flags.
func (dbExportCommand) Help() string {
	return "The file holds everything but the event log, one JSON object a line, as it was at one moment. Servers may go on writing meanwhile.\n\n" +
		"Example, from one kind of database to another:\n  agl db export --db sqlite:agl.db - | agl db import --db postgres://agl@db/agl -"
}

func (c *dbExportCommand) run(ctx context.Context, m *Main) error {
	return c.with(ctx, func(db store.Database) (err error) {
		var counts store.Counts
		write := func(w io.Writer) (err error) {
			counts, err = store.Export(ctx, db, &meteredWriter{meter: newMeter(m.Stderr, "exported"), to: w})
			return err
		}
		if c.File == "-" {
			err = write(m.Stdout)
		} else {
			err = newFile(c.File, write)
		}
		if err != nil {
			return fmt.Errorf("export %s: %w", c.DB, err)
		}
		return summarize(m.Stderr, "exported", counts, "to", c.File)
	})
}

type dbImportCommand struct {
	operatedFlags
	File string `arg:"" help:"The file, or - for standard input."`
}

// Help is shown below the flags.
func (dbImportCommand) Help() string {
	return "The database is made if there is none. No server may use it meanwhile, and it must be empty or hold a part of the same export."
}

func (c *dbImportCommand) run(ctx context.Context, m *Main) (err error) {
	in := os.Stdin
	if c.File != "-" {
		if in, err = os.Open(c.File); err != nil {
			return err
		}
		defer in.Close()
	}
	// What must not be opened for it (a server has it, a newer schema) is refused
	// before anything is read.
	driver, err := backend.Open(ctx, backend.Config{DSN: c.DB.DSN})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close(context.WithoutCancel(ctx))) }()
	meter := newMeter(m.Stderr, "imported")
	counts, err := store.Import(ctx, driver, in, func(done store.Counts) { meter.at(records(done), done.Bytes) })
	switch {
	case errors.Is(err, agl.ErrConflict), errors.Is(err, agl.ErrInvalid):
		return fmt.Errorf("import %s: %w", c.File, err)
	case err != nil:
		return fmt.Errorf("import %s: %w; the same command goes on where it ended", c.File, err)
	}
	return summarize(m.Stderr, "imported", counts, "from", c.File)
}

// newFile writes a file that is there when it is complete, and not before. One
// that exists stays as it is.
func newFile(path string, write func(w io.Writer) error) (err error) {
	taken := fmt.Errorf("%s: the file exists; name a new one", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	partial, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		if removed := os.Remove(partial.Name()); err == nil {
			err = removed
		}
	}()
	err = write(partial)
	if err == nil {
		err = partial.Sync()
	}
	if closed := partial.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	// Unlike a renaming, a link does not replace what has come to be there.
	if err := os.Link(partial.Name(), path); errors.Is(err, os.ErrExist) {
		return taken
	} else if err != nil {
		return err
	}
	return nil
}

// records is how many records there are.
func records(c store.Counts) int {
	return c.Resources + c.Workers + c.Rollouts + c.Attempts + c.Spans + c.Sequences + c.Keys
}

// summarize tells what was transferred.
func summarize(w io.Writer, verb string, c store.Counts, preposition, file string) error {
	_, err := fmt.Fprintf(w, "agl: %s %d rollouts, %d attempts, %d spans, %d resources, %d workers (%s) %s %s\n",
		verb, c.Rollouts, c.Attempts, c.Spans, c.Resources, c.Workers, formatSize(c.Bytes), preposition, file)
	if err != nil {
		return fmt.Errorf("write to standard error: %w", err)
	}
	return nil
}

// progressEvery is how often a long transfer tells how far it is.
const progressEvery = 5 * time.Second

// meter tells how far a transfer is.
type meter struct {
	w    io.Writer
	verb string
	told time.Time
}

func newMeter(w io.Writer, verb string) *meter { return &meter{w: w, verb: verb, told: time.Now()} }

// at tells how far it is, if it has not done so lately. Where standard error is
// closed, the summary's error is enough.
func (m *meter) at(records int, bytes int64) {
	if time.Since(m.told) < progressEvery {
		return
	}
	m.told = time.Now()
	_, _ = fmt.Fprintf(m.w, "agl: %s %d records so far, %s\n", m.verb, records, formatSize(bytes))
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
