package store

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns how long this machine has run since it was booted, and the id of that boot; "" if
// they cannot be found out.
func uptime() (boot string, up time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var at unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(at.Nano())
}
