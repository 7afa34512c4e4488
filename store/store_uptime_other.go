//go:build !linux

package store

import "time"

// uptime returns "": where a machine has no id of its boot, the system's clock is believed.
func uptime() (boot string, up time.Duration) { return "", 0 }
