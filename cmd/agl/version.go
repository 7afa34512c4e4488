package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

type versionCommand struct{}

func (versionCommand) run(_ context.Context, out *console.Console) error {
	return out.Printf("agl %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= short {
			return "devel-" + s.Value[:short]
		}
	}
	return "devel"
}
