//go:build !unix

package process

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// Without groups the process alone is ended.
func terminateGroup(pid int) { killGroup(pid) }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may be gone already
	}
}
