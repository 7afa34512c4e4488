package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

const spanTokenPrefix = "agl-span-"

// SpanToken returns a token that is accepted in place of the server's token for the spans of one attempt, sent to
// [Traces]. It names the attempt, so that a server can reject a request before it reads the body:
//
//	agl-span-{claim}.{mac}   in raw URL-safe base64
//	claim = expiry in Unix seconds as 8 bytes, length of the rollout id as 4 bytes, rollout id, attempt id
//	mac   = HMAC-SHA256(SHA-256("agl spans " + the server's token), claim)
func SpanToken(token, rolloutID, attemptID string, expiry time.Time) string {
	claim := binary.BigEndian.AppendUint64(nil, uint64(expiry.Unix()))
	claim = binary.BigEndian.AppendUint32(claim, uint32(len(rolloutID)))
	claim = append(append(claim, rolloutID...), attemptID...)
	encode := base64.RawURLEncoding.EncodeToString
	return spanTokenPrefix + encode(claim) + "." + encode(spanMAC(token, claim))
}

// CheckSpanToken returns the attempt that a span token was made for. ok is false if
// it was not made from the server's token, or has expired.
func CheckSpanToken(token, spanToken string, now time.Time) (attempt agl.Claim, ok bool) {
	text, found := strings.CutPrefix(spanToken, spanTokenPrefix)
	if !found {
		return attempt, false
	}
	first, second, _ := strings.Cut(text, ".")
	claim, err := base64.RawURLEncoding.DecodeString(first)
	mac, macErr := base64.RawURLEncoding.DecodeString(second)
	if err != nil || macErr != nil || !hmac.Equal(mac, spanMAC(token, claim)) {
		return attempt, false
	}
	// The MAC is valid: this server's token made the claim.
	expiry, length, ids := binary.BigEndian.Uint64(claim), binary.BigEndian.Uint32(claim[8:]), string(claim[12:])
	return agl.Claim{RolloutID: ids[:length], AttemptID: ids[length:]}, now.Unix() < int64(expiry)
}

func spanMAC(token string, claim []byte) []byte {
	secret := sha256.Sum256([]byte("agl spans " + token))
	h := hmac.New(sha256.New, secret[:])
	h.Write(claim)
	return h.Sum(nil)
}
