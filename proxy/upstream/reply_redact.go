package upstream

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// minSecret is the length of the shortest key that is treated as a secret. Servers that check
// no key are given a word such as EMPTY, which any reply may contain.
const minSecret = 8

// secretName matches parameters of a query whose values are secrets.
var secretName = regexp.MustCompile(`(?i)key|token|secret|pass`)

// redact hides the secrets of a backend in its reply. Some servers repeat the key that they
// refuse, and neither the agent nor a record may see it. Each byte of a secret becomes an
// asterisk, so that no length changes.
func (b *backend) redact(res *http.Response, key string) {
	var secrets [][]byte
	longest := 0
	add := func(text string) {
		if len(text) >= minSecret {
			secrets, longest = append(secrets, []byte(text)), max(longest, len(text))
		}
	}
	add(key)
	if at := b.base.User; at != nil {
		password, _ := at.Password()
		add(password)
		add(base64.StdEncoding.EncodeToString([]byte(at.Username() + ":" + password)))
	}
	for parameter := range strings.SplitSeq(b.base.RawQuery, "&") { // servers repeat the URL that they do not know, as it was sent or decoded
		name, value, _ := strings.Cut(parameter, "=")
		if !secretName.MatchString(name) {
			continue
		}
		add(value)
		if decoded, err := url.QueryUnescape(value); err == nil && decoded != value {
			add(decoded)
		}
	}
	if len(secrets) == 0 {
		return
	}
	for _, values := range res.Header {
		for i := range values {
			for _, s := range secrets {
				values[i] = strings.ReplaceAll(values[i], string(s), strings.Repeat("*", len(s)))
			}
		}
	}
	res.Body = &redactedBody{body: res.Body, secrets: secrets, longest: longest}
}

// redactedBody hides secrets in a body. Bytes at the end of a read that may begin a secret are
// held until the next read.
type redactedBody struct {
	body    io.ReadCloser
	secrets [][]byte
	longest int    // length of the longest secret
	held    []byte // bytes that may begin a secret
	own     []byte // used when a caller's buffer is too small
	out     []byte // the part of own that is still to be returned
	err     error  // of body; returned after everything else
}

// Close implements [io.Closer].
func (r *redactedBody) Close() error { return r.body.Close() }

// Read implements [io.Reader].
func (r *redactedBody) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if len(r.out) > 0 {
			n := copy(p, r.out)
			r.out = r.out[n:]
			return n, nil
		}
		if r.err != nil {
			return 0, r.err
		}
		to, theirs := p, true
		if len(p) < 2*r.longest {
			if r.own == nil {
				r.own = make([]byte, 2*r.longest)
			}
			to, theirs = r.own, false
		}
		n := copy(to, r.held)
		more, err := r.body.Read(to[n:])
		n += more
		r.err = err
		kept := r.hide(to[:n])
		if err != nil {
			kept = 0
		}
		r.held = append(r.held[:0], to[n-kept:n]...)
		n -= kept
		switch {
		case !theirs:
			r.out = to[:n]
		case n > 0:
			return n, nil
		}
	}
	return 0, nil
}

// hide replaces secrets, and returns how many bytes at the end may begin one.
func (r *redactedBody) hide(data []byte) (held int) {
	for _, s := range r.secrets {
		for rest := data; ; {
			at := bytes.Index(rest, s)
			if at < 0 {
				break
			}
			rest = rest[at:]
			copy(rest, bytes.Repeat([]byte("*"), len(s)))
			rest = rest[len(s):]
		}
	}
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(data)); n > held; n-- {
			if bytes.HasSuffix(data, s[:n]) {
				held = n
			}
		}
	}
	return held
}
