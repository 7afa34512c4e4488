package procgroup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitExit returns when the process has ended, and reports whether it is still to be reaped, so that its number is taken.
func awaitExit(p *os.Process) bool {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
