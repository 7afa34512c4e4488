package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

// The store starts the browser with its address, and goes on without one.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "opened")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\necho \"$@\" > "+pipe+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var told string
	var errs bytes.Buffer
	out := &console.Console{Err: &errs, Listening: func(url string) { told = url }}

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	openFlag{Open: true}.listening(out).Listening("http://127.0.0.1:1/")
	opened, err := os.ReadFile(pipe)
	if err != nil || string(opened) != "http://127.0.0.1:1/\n" || told != "http://127.0.0.1:1/" || errs.Len() > 0 {
		t.Errorf("opened %q, told %q, said %q, error %v", opened, told, &errs, err)
	}

	t.Setenv("PATH", t.TempDir())
	openFlag{Open: true}.listening(out).Listening("http://127.0.0.1:2/")
	if !strings.Contains(errs.String(), "the dashboard is at http://127.0.0.1:2/") || told != "http://127.0.0.1:2/" {
		t.Errorf("told %q, said %q", told, &errs)
	}
	errs.Reset()
	openFlag{}.listening(out).Listening("http://127.0.0.1:3/")
	if errs.Len() > 0 || told != "http://127.0.0.1:3/" {
		t.Errorf("told %q, said %q without --open", told, &errs)
	}
}
