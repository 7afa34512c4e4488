package main

import (
	"bytes"
	"io"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	m := newMeter(&told, "exported")
	w := &meteredWriter{meter: m, to: io.Discard}
	for range 3 {
		if _, err := io.WriteString(w, "a\nb\n"); err != nil {
			t.Fatal(err)
		}
	}
	if told.Len() != 0 {
		t.Errorf("a short transfer tells %q", &told)
	}
	m.told = m.told.Add(-2 * progressEvery)
	before := time.Now()
	if _, err := io.WriteString(w, "c\n"); err != nil {
		t.Fatal(err)
	}
	if got, want := told.String(), "agl: exported 7 records so far, 14 B\n"; got != want || m.told.Before(before) {
		t.Errorf("got %q, want %q", got, want)
	}
}
