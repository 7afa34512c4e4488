package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/archive"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
)

// TestRecords pins that the progress of an import counts the records of each kind, as that of an export counts lines.
func TestRecords(t *testing.T) {
	counts := archive.Counts{Resources: 1, Workers: 10, Rollouts: 100, Attempts: 1000, Spans: 10_000, Sequences: 100_000, Documents: 1_000_000, Keys: 10_000_000, Bytes: 5}
	if got := records(counts); got != 11_111_111 {
		t.Errorf("got %d records, want 11111111", got)
	}
}

// interruptedDriver is a database whose import is interrupted when it begins.
type interruptedDriver struct {
	driver.Driver

	interrupt context.CancelFunc
}

func (d interruptedDriver) Begin(ctx context.Context) (driver.Tx, error) {
	d.interrupt()
	return nil, ctx.Err()
}

// An import that is interrupted says that the same command continues it: no server opens what it leaves.
func TestImportInterrupted(t *testing.T) {
	t.Parallel()
	empty, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var export, said strings.Builder
	if _, err := archive.Export(t.Context(), empty, &export); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	d := interruptedDriver{empty, interrupt}
	err = (&dbImportCommand{File: "all.jsonl"}).into(ctx, &console.Console{Out: io.Discard, Err: &said}, d, strings.NewReader(export.String()))
	if !errors.Is(err, context.Canceled) || said.String() != "agl: interrupted, with a part of the export imported; run the same command again to continue\n" {
		t.Errorf("got %v, and it said %q", err, said.String())
	}
}
