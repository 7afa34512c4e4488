//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the process the leader of a new group.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// The number of a group stays taken while it has members, so that nobody else
// is hit; an empty group is an error that says nothing.
func terminateGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
