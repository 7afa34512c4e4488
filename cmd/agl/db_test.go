package main

import (
	"bytes"
	"io"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	var reported bytes.Buffer
	m := newMeter(&reported, "exported")
	w := &meteredWriter{meter: m, to: io.Discard}
	for range 3 {
		if _, err := io.WriteString(w, "a\nb\n"); err != nil {
			t.Fatal(err)
		}
	}
	if reported.Len() != 0 {
		t.Errorf("a short transfer tells %q", &reported)
	}
	m.reported = m.reported.Add(-2 * progressEvery)
	before := time.Now()
	if _, err := io.WriteString(w, "c\n"); err != nil {
		t.Fatal(err)
	}
	if got, want := reported.String(), "agl: exported 7 records so far, 14 B\n"; got != want || m.reported.Before(before) {
		t.Errorf("got %q, want %q", got, want)
	}
}
