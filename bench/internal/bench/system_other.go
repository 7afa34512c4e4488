//go:build !linux

package bench

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

// The benchmarks compile everywhere and are measured on Linux.

func ownGroup(*exec.Cmd) {}

func killGroup(leader *os.Process) { _ = leader.Kill() } // it may have ended

func processCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// CPU is implemented on Linux only.
func CPU() (total time.Duration, err error) { return 0, errors.ErrUnsupported }
