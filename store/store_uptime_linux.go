package store

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns how long this machine has been running since it booted, and the id of that boot; "" if they are
// unknown.
func uptime() (boot string, up time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var at unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(at.Nano())
}
