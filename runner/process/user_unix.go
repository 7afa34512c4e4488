//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

const canChangeUser = true

// runAs makes a command run as a user, in no group but the user's own.
func runAs(cmd *exec.Cmd, user User) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID}
}
