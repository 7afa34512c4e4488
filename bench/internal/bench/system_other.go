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

func killGroup(head *os.Process) { _ = head.Kill() } // it may have ended

func processCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// CPU fails where the CPU time of children is not known.
func CPU() (total time.Duration, err error) { return 0, errors.ErrUnsupported }
