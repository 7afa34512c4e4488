package bench

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownGroup makes a command the leader of a new process group. The leader is killed when this process ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the process group of a leader.
func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) } // it may have ended

// processCPU returns the CPU time of a process so far.
func processCPU(pid int) (time.Duration, error) {
	const processClock = 2 // CPUCLOCK_SCHED: see clock_getcpuclockid(3)
	var spent unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|processClock), &spent)
	return time.Duration(spent.Nano()), err
}

// CPU returns the CPU time of this process and of the children that it has waited for.
func CPU() (total time.Duration, err error) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0, err
		}
		total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return total, nil
}
