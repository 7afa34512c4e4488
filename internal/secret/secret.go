// Package secret checks tokens and keys before they are used, and keeps the secrets of URLs out of messages. It must not know
// whose they are.
package secret

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agl-go/agl"
)

// Check refuses a token or a key that no header of a request carries unchanged, such as one that came with the line break at
// the end of its file: CodeInvalid. name says in the error where it was given; the error does not show it.
func Check(name, token string) error {
	if at := strings.IndexFunc(token, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }); at >= 0 {
		r, _ := utf8.DecodeRuneInString(token[at:])
		return agl.Errorf(agl.CodeInvalid, "%s: has the character %U, which does not belong in an HTTP header; a token or key is one line of visible characters, without the line break at the end of its file", name, r)
	}
	if strings.TrimSpace(token) != token {
		return agl.Errorf(agl.CodeInvalid, "%s: has a space at its beginning or end, which HTTP headers lose", name)
	}
	return nil
}

// ParseURL is url.Parse, but refuses a port above 65535. Its error does not show the URL, which may hold a password.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		return nil, wrong.Err
	}
	if err != nil || u.Port() == "" {
		return u, err
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil {
		return nil, fmt.Errorf("the port %s is above 65535", u.Port())
	}
	return u, nil
}

// parameter is a parameter of a query, and its first group the name.
var parameter = regexp.MustCompile(`([^&=]+=)?[^&]+`)

// RedactURL hides the password of a URL, a user without one, which may be a token, and the values in its query, which may be keys.
func RedactURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@") && (err != nil || u.Host == ""), strings.Contains(s, "?") && err != nil: // a secret may stand beside these
		return "(not a URL)"
	case err != nil:
		return s
	}
	u.RawQuery = parameter.ReplaceAllString(u.RawQuery, "${1}xxxxx")
	if _, given := u.User.Password(); u.User.Username() != "" && !given {
		u.User = url.User("xxxxx")
	}
	return u.Redacted()
}
