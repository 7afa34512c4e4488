package wire

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// GivenKey is the body that posts to [Login] and [CheckKey].
type GivenKey struct {
	Key string `json:"key"`
}

// UnmarshalJSONFrom rejects unknown members. Its error does not repeat what was sent, which may be a secret.
func (l *GivenKey) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain GivenKey
	err := json.UnmarshalDecode(dec, (*plain)(l), json.RejectUnknownMembers(true))
	if l.Key = strings.TrimSpace(l.Key); err != nil || l.Key == "" {
		return agl.Errorf(agl.CodeInvalid, "body: must be an object with key, a key or the token of the server, and nothing else")
	}
	return nil
}
