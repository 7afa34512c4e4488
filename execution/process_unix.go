//go:build unix

package execution

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the child the leader of a new process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills what is left of a child's process group. Its number stays
// taken while the group has members, so that nobody else is hit; an empty group
// is an error that says nothing.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// killOwnGroup ends this process with everything that it started in its group.
func killOwnGroup() {
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// exitCode is the exit status, or minus the number of the signal that ended the
// process.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -int(status.Signal())
	}
	return state.ExitCode()
}

// openLifeline takes the descriptor that the parent handed down.
func openLifeline(fd int) (*os.File, error) {
	// What this process starts must not inherit it.
	syscall.CloseOnExec(fd)
	// Without this a read would not end when the file is closed.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: descriptor %d is not open: %w", EnvLifeline, fd, err)
	}
	return os.NewFile(uintptr(fd), "lifeline"), nil
}
