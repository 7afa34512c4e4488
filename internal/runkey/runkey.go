// Package runkey makes and checks the API keys that the agents of a run call its proxy with. A run key belongs to all
// attempts of a run; each attempt derives a key of its own from it, which is worthless for any other attempt:
//
//	agl-run-{expiry}-{mac}       mac = HMAC-SHA256(secret, "agl-run-{expiry}")
//	agl-attempt-{expiry}-{mac}   mac = HMAC-SHA256(mac of the run key, "{length of rollout id}:{rollout id}{attempt id}")
//
// The expiry is in Unix seconds; a mac is 32 bytes in raw URL-safe base64. Whoever holds the secret can check a key that it
// has never seen. Whoever holds a run key can derive attempt keys and no run key.
//
// The package knows ids and keys. It must not know who asks for them.
package runkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

const (
	runPrefix     = "agl-run-"
	attemptPrefix = "agl-attempt-"
)

// New returns the run key of a secret.
func New(secret string, expiry time.Time) string {
	head := runPrefix + strconv.FormatInt(expiry.Unix(), 10)
	return head + "-" + base64.RawURLEncoding.EncodeToString(mac([]byte(secret), head))
}

// ForAttempt derives the key of one attempt. ok is false if key is not a run key.
func ForAttempt(key, rolloutID, attemptID string) (attemptKey string, ok bool) {
	expiry, secret, ok := parse(key, runPrefix)
	if !ok {
		return "", false
	}
	own := mac(secret, strconv.Itoa(len(rolloutID))+":"+rolloutID+attemptID)
	return attemptPrefix + expiry + "-" + base64.RawURLEncoding.EncodeToString(own), true
}

// IsVirtual reports whether a key has the form of a run key or an attempt key.
// Such keys are for the proxy alone and must not be sent to a model's server.
func IsVirtual(key string) bool {
	return strings.HasPrefix(key, attemptPrefix) || strings.HasPrefix(key, runPrefix)
}

// Check reports whether a key is the attempt's key under the secret and has not expired.
func Check(secret, key, rolloutID, attemptID string, now time.Time) bool {
	expiry, _, ok := parse(key, attemptPrefix)
	if !ok {
		return false
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || now.Unix() >= seconds {
		return false
	}
	want, _ := ForAttempt(New(secret, time.Unix(seconds, 0)), rolloutID, attemptID)
	return hmac.Equal([]byte(key), []byte(want))
}

func mac(secret []byte, message string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(message))
	return h.Sum(nil)
}

// parse splits a key that begins with prefix.
func parse(key, prefix string) (expiry string, mac []byte, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", nil, false
	}
	expiry, encoded, ok := strings.Cut(rest, "-")
	mac, err := base64.RawURLEncoding.DecodeString(encoded)
	return expiry, mac, ok && err == nil && len(mac) == sha256.Size
}
