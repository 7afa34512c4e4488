//go:build unix

package execution

import (
	"fmt"
	"os"
	"syscall"
)

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
