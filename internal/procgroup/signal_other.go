//go:build !unix

package procgroup

import (
	"os"
	"os/exec"
)

func setLeader(*exec.Cmd) {}

func kill(leader *os.Process)      { _ = leader.Kill() } // it may have ended already
func terminate(leader *os.Process) { kill(leader) }
