//go:build !linux

package process

import (
	"os"
	"os/exec"
)

// Reaper ends processes that agents leave behind. It needs Linux: on this system it does nothing.
type Reaper struct{}

// NewReaper returns nil on this system: only process groups are ended.
func NewReaper() (*Reaper, error) { return nil, nil } //nolint:nilnil // documented

// Close does nothing.
func (*Reaper) Close() error { return nil }

func (*Reaper) start(cmd *exec.Cmd, _ string) error { return cmd.Start() }

func (*Reaper) sweep(string, int) int { return 0 }

// unread is not known on this system.
func unread(*os.File) int { return 0 }
