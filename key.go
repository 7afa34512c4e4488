package agl

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// The API key of a [ProxyLLM] may be a run key, of which every attempt gets a key
// of its own that is worth nothing for another attempt:
//
//	agl-run-{expiry}-{mac}       mac = HMAC-SHA256(secret, "agl-run-{expiry}")
//	agl-attempt-{expiry}-{mac}   mac = HMAC-SHA256(run key's mac, "{length of rollout id}:{rollout id}{attempt id}")
//
// The expiry is in Unix seconds, the macs are raw URL-safe base64 of 32 bytes.
// Whoever has the secret can check a key without having seen it before; whoever
// has a run key can make keys for attempts, but no run key.
const (
	runKeyPrefix     = "agl-run-"
	attemptKeyPrefix = "agl-attempt-"
)

// RunKey returns the run key of a secret.
func RunKey(secret string, expiry time.Time) string {
	head := runKeyPrefix + strconv.FormatInt(expiry.Unix(), 10)
	return head + "-" + base64.RawURLEncoding.EncodeToString(keyMAC([]byte(secret), head))
}

// AttemptKey returns the key of one attempt; ok is false if key is no run key.
func AttemptKey(key, rolloutID, attemptID string) (attemptKey string, ok bool) {
	expiry, mac, ok := cutKey(key, runKeyPrefix)
	if !ok {
		return "", false
	}
	own := keyMAC(mac, strconv.Itoa(len(rolloutID))+":"+rolloutID+attemptID)
	return attemptKeyPrefix + expiry + "-" + base64.RawURLEncoding.EncodeToString(own), true
}

// IsVirtualKey reports whether a key looks like one of a run or an attempt. Such
// keys are for the proxy alone.
func IsVirtualKey(key string) bool {
	return strings.HasPrefix(key, attemptKeyPrefix) || strings.HasPrefix(key, runKeyPrefix)
}

// CheckAttemptKey reports whether a key is that of the attempt under the secret
// and has not expired by now.
func CheckAttemptKey(secret, key, rolloutID, attemptID string, now time.Time) bool {
	expiry, _, ok := cutKey(key, attemptKeyPrefix)
	if !ok {
		return false
	}
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || now.Unix() >= seconds {
		return false
	}
	want, _ := AttemptKey(RunKey(secret, time.Unix(seconds, 0)), rolloutID, attemptID)
	return hmac.Equal([]byte(key), []byte(want))
}

func keyMAC(secret []byte, message string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(message))
	return h.Sum(nil)
}

// cutKey takes a key of a kind apart.
func cutKey(key, prefix string) (expiry string, mac []byte, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", nil, false
	}
	expiry, encoded, ok := strings.Cut(rest, "-")
	mac, err := base64.RawURLEncoding.DecodeString(encoded)
	return expiry, mac, ok && err == nil && len(mac) == sha256.Size
}
