package access

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	prefix   = "agl_"
	idLength = 12
	maxName  = 200 // bytes of the name of a key or a model, and of the secret in a key
)

// IsKey reports whether a text has the form of a key.
func IsKey(text string) bool {
	_, ok := keyID(text)
	return ok
}

// keyID returns the id in a key.
func keyID(key string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false
	}
	id, secret, ok := strings.Cut(rest, "_")
	return id, ok && len(id) == idLength && secret != "" && len(secret) < maxName
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
