package main

import (
	"fmt"
	"os/exec"
	"runtime"

	"github.com/agl-go/agl/cmd/agl/internal/console"
)

// openFlag opens the dashboard of the store that a command serves.
type openFlag struct {
	Open bool `help:"Open the dashboard in a browser."`
}

// listening returns the console whose Listening also opens the dashboard, if that is wanted. A browser that cannot be started
// ends nothing.
func (f openFlag) listening(out *console.Console) *console.Console {
	if !f.Open {
		return out
	}
	opening := *out
	opening.Listening = func(url string) {
		if out.Listening != nil {
			out.Listening(url)
		}
		if err := browse(url); err != nil {
			_, _ = fmt.Fprintf(out.Err, "agl: --open: %v; the dashboard is at %s\n", err, url)
		}
	}
	return &opening
}

// browse starts the system's browser and does not wait for it.
func browse(url string) error {
	command := opener(runtime.GOOS)
	cmd := exec.Command(command[0], append(command[1:], url)...) //nolint:noctx // the browser outlives this program
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// opener is the command of a system that opens an address.
func opener(system string) []string {
	switch system {
	case "darwin":
		return []string{"open"}
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler"}
	}
	return []string{"xdg-open"}
}
