package postgrestest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the system end the server when this process is killed.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The server ignores signals from the terminal, because the tests end it themselves.
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = immediate
}
