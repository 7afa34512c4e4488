package postgrestest

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends the server when this process is killed and cannot do it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// A signal to the terminal is for the tests, which end the server themselves.
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = immediate
}
