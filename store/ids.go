package store

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/agl-go/agl"
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

// maxID is how long an id or key may be, in bytes: every database can index
// this, and what one call names too long must not cost its batch.
const maxID = 1024

// givenID is an id as a call names it.
type givenID struct{ field, id string }

// checkIDs rejects ids that are too long.
func checkIDs(ids ...givenID) error {
	for _, given := range ids {
		if len(given.id) > maxID {
			return agl.Errorf(agl.CodeInvalid, "%s: got %.40q…, which is %d bytes, must be at most %d", given.field, given.id, len(given.id), maxID)
		}
	}
	return nil
}
