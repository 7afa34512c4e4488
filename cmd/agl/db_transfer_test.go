package main

import (
	"testing"

	"github.com/agl-go/agl/store/archive"
)

// TestRecords pins that the progress of an import counts the records of each kind, as that of an export counts lines.
func TestRecords(t *testing.T) {
	counts := archive.Counts{Resources: 1, Workers: 10, Rollouts: 100, Attempts: 1000, Spans: 10_000, Sequences: 100_000, Documents: 1_000_000, Keys: 10_000_000, Bytes: 5}
	if got := records(counts); got != 11_111_111 {
		t.Errorf("got %d records, want 11111111", got)
	}
}
