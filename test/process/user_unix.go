//go:build unix

package process

import (
	"os/exec"
	"syscall"
)

// User is whom a process runs as.
type User = syscall.Credential

// ownGroup makes a command the leader of a new process group, run as another user unless who is nil.
func ownGroup(cmd *exec.Cmd, who *User) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
}
