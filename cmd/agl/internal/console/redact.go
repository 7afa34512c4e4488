package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/secret"
)

// Redacted replaces a secret key in output.
const Redacted = "redacted"

// RedactJSON replaces the values of members whose names are those of keys, and hides
// passwords and queries in the URLs of models. All other bytes stay as they are.
func RedactJSON(doc []byte) ([]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(doc), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out []byte
	copied := 0
	for {
		container, length := dec.StackIndex(dec.StackDepth())
		isName := container == '{' && length%2 == 0
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return append(out, doc[copied:]...), nil
		case err != nil:
			return nil, fmt.Errorf("redact keys: %w", err)
		case !isName || token.Kind() != '"':
			continue
		}
		name := token.String()
		if !namesKey(name) && !namesAddress(name) {
			continue
		}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, fmt.Errorf("redact keys: %w", err)
		}
		end := int(dec.InputOffset())
		if shown, changed := redactValue(name, value); changed {
			out = append(append(out, doc[copied:end-len(value)]...), shown...)
			copied = end
		}
	}
}

// redactValue returns what is shown instead of a member's value, if that is a secret. A reference
// to an environment variable is not a secret.
func redactValue(name string, value jsontext.Value) (shown jsontext.Value, changed bool) {
	var text string
	switch value.Kind() {
	case 'n':
		return nil, false
	case '"':
		unquoted, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			break // it is not UTF-8, but may be a key
		}
		text = string(unquoted)
		if text == "" || namesKey(name) && strings.HasPrefix(text, "env:") {
			return nil, false
		}
	}
	if namesKey(name) {
		return jsontext.Value(`"` + Redacted + `"`), true
	}
	if !strings.ContainsAny(text, "@?") {
		return nil, false
	}
	shown, err := jsontext.AppendQuote(nil, secret.RedactURL(text))
	if err != nil {
		return jsontext.Value(`"` + Redacted + `"`), true
	}
	return shown, true
}

// lastPart returns the last part of a dotted name, in lower case and with underscores.
func lastPart(name string) string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	return strings.ReplaceAll(name, "-", "_")
}

// namesKey reports whether the value of a member is a secret key.
func namesKey(name string) bool {
	switch lastPart(name) {
	case "api_key", "apikey", "x_api_key", "authorization", "proxy_authorization", "bearer_token", "access_token":
		return true
	}
	return false
}

// namesAddress reports whether the value of a member is the URL of a model.
func namesAddress(name string) bool {
	switch lastPart(name) {
	case "endpoint", "base_url", "api_base":
		return true
	}
	return false
}
