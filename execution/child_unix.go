//go:build unix

package execution

import (
	"fmt"
	"os"
	"syscall"
)

// killOwnGroup kills this process and everything that it started in its process group.
func killOwnGroup() {
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// exitCode returns the exit status, or minus the number of the signal that ended the process.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -int(status.Signal())
	}
	return state.ExitCode()
}

// openLifeline opens the descriptor that the parent passed on.
func openLifeline(fd int) (*os.File, error) {
	// Children of this process must not inherit it.
	syscall.CloseOnExec(fd)
	// Otherwise closing the file would not end a blocked read.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: descriptor %d is not open: %w", EnvLifeline, fd, err)
	}
	return os.NewFile(uintptr(fd), "lifeline"), nil
}
