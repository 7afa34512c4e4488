//go:build !unix

package process

import "os/exec"

const canChangeUser = false

func runAs(*exec.Cmd, User) {}
