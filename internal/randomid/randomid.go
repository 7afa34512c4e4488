// Package randomid makes random ids that nobody can guess. It must not know what they identify.
package randomid

import (
	"crypto/rand"
	"encoding/hex"
)

// Hex returns n random bytes as 2·n hexadecimal digits.
func Hex(n int) string {
	id := make([]byte, n)
	_, _ = rand.Read(id) // never fails; it ends the program instead
	return hex.EncodeToString(id)
}
