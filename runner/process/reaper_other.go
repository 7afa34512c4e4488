//go:build !linux

package process

import (
	"os/exec"

	"github.com/agl-go/agl"
)

// Reaper finds what agents have started and left behind. It needs Linux.
type Reaper struct{}

// NewReaper is agl.ErrUnimplemented on this system: only process groups are
// ended.
func NewReaper() (*Reaper, error) {
	return nil, agl.Errorf(agl.CodeUnimplemented, "a reaper of agents' processes needs Linux")
}

// Close does nothing.
func (*Reaper) Close() error { return nil }

func (*Reaper) start(cmd *exec.Cmd, _ string) error { return cmd.Start() }

func (*Reaper) sweep(string) int { return 0 }
