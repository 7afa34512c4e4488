package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/terminal"
)

type versionCommand struct{}

func (versionCommand) run(_ context.Context, out *console.Console) error {
	commit, date := built()
	return out.Printf("agl %s\ncommit %s\ndate   %s\n%s %s/%s\n",
		version(), cmp.Or(commit, "unknown"), cmp.Or(date, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// built returns the commit that the program was built from, with a mark if the checkout
// had changes, and the commit's date; empty if the build does not know.
func built() (commit, date string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", ""
	}
	changed := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.time":
			date = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = " with changes"
			}
		}
	}
	if commit != "" {
		commit += changed
	}
	return commit, date
}

// version is the module's version, or the commit for a build from a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	const short = 12
	if commit, _ := built(); len(commit) >= short {
		return "devel-" + commit[:short]
	}
	return "devel"
}

// programName is what a person types to run this program. The wheel installs it as agl-go,
// since Python's agentlightning has an agl of its own.
func programName() string {
	const installed, wheel = "agl", "agl-go"
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == wheel {
		return wheel
	}
	return installed
}

// commandName is programName, or the path of this program if the shell finds none, or another one, under that name.
func commandName() string {
	name := programName()
	if filepath.Base(os.Args[0]) == os.Args[0] { // the shell has found it
		return name
	}
	path, err := filepath.Abs(os.Args[0])
	if err != nil {
		return name
	}
	if self, err := os.Executable(); err == nil {
		found, _ := exec.LookPath(name) // empty if there is none: no file
		own, ownErr := os.Stat(self)
		other, otherErr := os.Stat(found)
		if ownErr == nil && otherErr == nil && os.SameFile(own, other) {
			return name
		}
	}
	return terminal.ShellWord(path)
}
