package upstream

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/secret"
)

// CheckURL refuses what is not an absolute HTTP URL with CodeInvalid. The message
// leaves out the URL's secrets.
func CheckURL(field, raw string) error {
	u, err := secret.ParseURL(raw)
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "%s: not a URL: %w", field, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return agl.Errorf(agl.CodeInvalid, "%s: got %q, must be an absolute http or https URL such as http://127.0.0.1:8000/v1", field, secret.RedactURL(raw))
	}
	if u.Fragment != "" { // it would never be sent
		return agl.Errorf(agl.CodeInvalid, "%s: got a URL with #%s, must end before it", field, u.Fragment)
	}
	return nil
}
