//go:build !linux

package postgrestest

import "os/exec"

// dieWithParent does nothing here: only Linux can do it.
func dieWithParent(*exec.Cmd) {}
