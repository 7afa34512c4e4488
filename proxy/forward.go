package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// NewTransport returns the transport of a proxy whose Config names none: for many
// calls to few hosts.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 1024, // a connection that is closed after its call costs more than one that waits
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // replies must be read, and backends are near
		ForceAttemptHTTP2:   true,
		ReadBufferSize:      16 << 10,
	}
}

// hopByHop are headers of a connection, not of a message, and those that the
// proxy sets itself.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Accept-Encoding":
		return true
	}
	return false
}

// copyHeader copies the headers of a message. The lists are shared.
func copyHeader(dst, src http.Header) {
	for name, values := range src {
		if !hopByHop(name) {
			dst[name] = values
		}
	}
	for _, list := range src["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(dst, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
}

// backendRequest is what b gets for an agent's request by a plan.
func backendRequest(ctx context.Context, r *http.Request, b *backend, pl *plan, key string) *http.Request {
	header := make(http.Header, len(r.Header)+1)
	copyHeader(header, r.Header)
	b.authorize(header, key, pl.translate != nil)
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = nil // else one is made up
	}
	if _, ok := header["Idempotency-Key"]; !ok {
		// Not sent. It lets the transport repeat a request that it wrote to a pooled
		// connection which the backend was just closing, and only then.
		header["Idempotency-Key"] = []string{}
	}
	query := r.URL.RawQuery
	if pl.translate != nil {
		header["Accept"] = []string{"application/json, text/event-stream"}
		query = "" // meant for an API of another kind
	}
	target := b.target(pl.path, query)
	body := pl.body
	out := &http.Request{
		Method: r.Method, URL: &target, Host: target.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
		GetBody:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
	return out.WithContext(ctx)
}

// authorize sets the headers that say who calls: with the backend's key in the
// place that its API has for it, or without one, with the agent's own, which
// moves to that place if the call is translated.
func (b *backend) authorize(header http.Header, key string, translated bool) {
	own := strings.TrimPrefix(header.Get("Authorization"), "Bearer ")
	if own == "" {
		own = header.Get("X-Api-Key")
	}
	if translated {
		for _, name := range [...]string{"Anthropic-Version", "Anthropic-Beta", "Openai-Organization", "Openai-Project", "Openai-Beta"} {
			delete(header, name)
		}
		if key == "" {
			key = own
		}
	}
	if key != "" {
		delete(header, "Authorization")
		delete(header, "X-Api-Key")
		delete(header, "Api-Key")
	}
	switch b.API {
	case APIAzure:
		if key != "" {
			header["Api-Key"] = []string{key}
		}
	case APIAnthropic:
		if key != "" {
			header["X-Api-Key"] = []string{key}
		}
		if header.Get("Anthropic-Version") == "" {
			header["Anthropic-Version"] = []string{cmp.Or(b.APIVersion, "2023-06-01")}
		}
	default:
		if key != "" {
			header["Authorization"] = []string{"Bearer " + key}
		}
	}
}

// target is where at a backend a path is.
func (b *backend) target(path, query string) url.URL {
	at := *b.base
	switch {
	case b.API == APIAzure:
		switch path {
		case "/chat/completions", "/completions", "/embeddings":
			path = "/openai/deployments/" + url.PathEscape(b.BackendModel) + path
		default:
			path = "/openai" + path
		}
		if !strings.Contains(query, "api-version=") {
			version := "api-version=" + url.QueryEscape(cmp.Or(b.APIVersion, "2024-10-21"))
			query = strings.TrimPrefix(query+"&"+version, "&")
		}
	case b.API == APIAnthropic && at.Path == "":
		at.Path = "/v1"
	case strings.HasPrefix(path, serverRoot):
		path = strings.TrimPrefix(path, serverRoot)
		at.Path, at.RawPath = strings.TrimSuffix(at.Path, "/v1"), ""
	}
	at.Path, at.RawPath = joinPath(&at, path)
	at.RawQuery = query
	return at
}

// joinPath appends an escaped path to a base URL's.
func joinPath(base *url.URL, escaped string) (path, raw string) {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		plain = escaped
	}
	if plain == escaped && base.RawPath == "" {
		return base.Path + plain, ""
	}
	return base.Path + plain, base.EscapedPath() + escaped
}

// errTooLong says that a body is longer than allowed.
var errTooLong = errors.New("body too long")

// firstRead is the room that a body of unknown length gets at first. What is not
// read to costs nothing.
const firstRead = 64 << 10

// readBody reads a body of at most limit bytes into buf's memory, or into more.
// hint is its length, if known. With an error it returns what came before.
func readBody(body io.Reader, buf []byte, hint, limit int64) ([]byte, error) {
	if hint > limit {
		return nil, errTooLong
	}
	if hint >= 0 {
		buf = roomFor(buf, int(hint))[:hint]
		n, err := io.ReadFull(body, buf)
		return buf[:n], err
	}
	buf = roomFor(buf, firstRead)
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, 4*len(buf)), buf...) // few and large steps: each copies what came before
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return buf, errTooLong
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// roomFor returns an empty buffer of at least n bytes: buf, if it is large enough.
// Unlike [slices.Grow] it writes nothing to new memory, of which little may be used.
func roomFor(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, 0, n)
	}
	return buf[:0]
}
