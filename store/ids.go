package store

import (
	"crypto/rand"
	"encoding/hex"
)

// ID lengths in random bytes, as the reference has them.
const (
	rolloutIDBytes   = 6
	attemptIDBytes   = 4
	resourcesIDBytes = 6
)

// newID returns the prefix and n random bytes in hex.
func newID(prefix string, n int) string {
	var raw [8]byte
	var text [32]byte
	// crypto/rand never fails: it ends the process when the system has no entropy.
	_, _ = rand.Read(raw[:n])
	out := append(text[:0], prefix...)
	return string(hex.AppendEncode(out, raw[:n]))
}
