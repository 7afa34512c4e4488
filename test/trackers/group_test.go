//go:build trackers

package trackers_test

import (
	"os/exec"
	"syscall"
)

// own gives a program a process group of its own, because the server has worker processes.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// end kills the group.
func end(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
