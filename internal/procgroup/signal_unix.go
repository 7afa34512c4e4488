//go:build unix

package procgroup

import (
	"os"
	"os/exec"
	"syscall"
)

func setLeader(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// Both may find no process that they could signal, which is no failure.
func kill(leader *os.Process)      { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
func terminate(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }
