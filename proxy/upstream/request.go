package upstream

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/httpbody"
)

// NewTransport returns the transport of a Pool whose Config has none. It is tuned
// for many calls to few hosts.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         httpbody.Dial((&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext),
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 1024, // opening a connection costs more than keeping it
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // replies are parsed, and backends are near
		ForceAttemptHTTP2:   true,
		// All calls share a connection of HTTP/2. Without pings, those of many minutes would wait for a dead one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// hopByHop reports whether a header belongs to a connection, not to a message, or
// is one that the proxy sets itself.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Accept-Encoding":
		return true
	}
	return false
}

// CopyHeader copies the headers of a message, without those of the connection. The
// lists are shared.
func CopyHeader(dst, src http.Header) {
	copyHeader(dst, src, func(name string) bool { return !hopByHop(name) })
}

func copyHeader(dst, src http.Header, wanted func(name string) bool) {
	for name, values := range src {
		if wanted(name) {
			dst[name] = values
		}
	}
	for _, list := range src["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			delete(dst, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
}

// forwarded reports whether a header of an agent's request may reach a backend. Cookies,
// the agent's addresses, and headers that choose which account the operator's key bills
// may not.
func forwarded(name string) bool {
	switch name {
	case "Accept", "Content-Type", "User-Agent", "Idempotency-Key",
		"Authorization", "X-Api-Key", "Api-Key",
		"Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
		"Traceparent", "Tracestate", "X-Request-Id", "X-Session-Id", "X-Data-Parallel-Rank":
		return true
	}
	return false
}

// Target is a backend to which a request is to be sent.
type Target struct {
	*Model

	// Unstreamed says that the backend gives token ids only in replies that do not stream.
	Unstreamed bool
}

// Message is a request in the form of a backend's API.
type Message struct {
	Path string // below the base URL; after [ServerRoot], below its root
	Body *httpbody.Body
	// Translated says that the backend's API is not the agent's: headers that belong
	// to the agent's API are not forwarded.
	Translated bool
	// Streams says that the request asks for a stream.
	Streams bool
	// StreamsIDs says that the request asks for token ids in a stream, which some
	// backends refuse.
	StreamsIDs bool
}

// Request is a call that is to be sent to a backend of a model.
type Request struct {
	Model string
	// Affinity is a key: calls with the same one go to the same replica while they
	// can, and find the prefixes of earlier calls in its cache. Empty is none.
	Affinity string
	// Agent is the agent's request, for its method, query and headers.
	Agent *http.Request
	// Message returns the request in the form of a backend's API. It is called for each
	// backend that is tried, perhaps several times. Its error answers the agent.
	Message func(to Target) (*Message, error)
	// Again, if set, is called before a request is repeated whose first reply was lost, so that
	// a backend may have executed it already. If it returns an error, the request is not
	// repeated and the call fails.
	Again func(ctx context.Context) error
	// Aside marks a request that the proxy makes for itself, such as counting the tokens of a
	// prompt. It is sent once, and its outcome does not count for the circuit breaker.
	Aside bool
	// Buffer makes Send receive the whole reply before it returns, unless it is a stream
	// or encoded. Send always does so for JSON and for translated requests. A reply that
	// breaks off before that is requested again.
	Buffer bool
}

// ServerRoot is the prefix of paths that start at the root of the server, not at the /v1
// of its base URL.
const ServerRoot = "/.."

// forward returns the HTTP request to a backend.
func (b *backend) forward(ctx context.Context, r *Request, m *Message, key string) *http.Request {
	header := make(http.Header, len(r.Agent.Header)+2)
	copyHeader(header, r.Agent.Header, forwarded)
	b.authorize(header, key, m.Translated)
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = nil // net/http would send its own
	}
	header["Accept-Encoding"] = []string{"identity"} // an encoded reply can be neither recorded nor translated
	if _, ok := header["Idempotency-Key"]; !ok {
		// An empty list sends no header, but lets the transport repeat a request that it
		// wrote to a pooled connection just as the backend closed it.
		header["Idempotency-Key"] = []string{}
	}
	query := r.Agent.URL.RawQuery
	if m.Translated {
		header["Accept"] = []string{"application/json, text/event-stream"}
		query = "" // it belongs to the agent's API
	}
	target := b.target(m.Path, query)
	out := &http.Request{
		Method: r.Agent.Method, URL: &target, Host: target.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: m.Body.Len(),
		Body:          m.Body.Reader(),
		GetBody:       func() (io.ReadCloser, error) { return m.Body.Reader(), nil },
	}
	return out.WithContext(ctx)
}

// authorize sets the headers with the API key: the backend's key in the header of its
// API. Without one the agent's own key is forwarded, in that header if the call is
// translated.
func (b *backend) authorize(header http.Header, key string, translated bool) {
	own := strings.TrimPrefix(header.Get("Authorization"), "Bearer ")
	if own == "" {
		own = header.Get("X-Api-Key")
	}
	if translated {
		for _, name := range [...]string{"Anthropic-Version", "Anthropic-Beta", "Openai-Beta"} {
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
		b.setKey(header, key)
	}
	if b.API == APIAnthropic && header.Get("Anthropic-Version") == "" {
		header["Anthropic-Version"] = []string{cmp.Or(b.APIVersion, "2023-06-01")}
	}
}

// setKey puts the backend's key into the header of its API.
func (b *backend) setKey(header http.Header, key string) {
	switch b.API {
	case APIAzure:
		header["Api-Key"] = []string{key}
	case APIAnthropic:
		header["X-Api-Key"] = []string{key}
	case APIOpenAI:
		header["Authorization"] = []string{"Bearer " + key}
	}
}

// target returns the URL of a path at the backend.
func (b *backend) target(path, query string) url.URL {
	at := *b.base
	if at.RawQuery != "" {
		query = mergeQuery(at.RawQuery, query)
	}
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
	case strings.HasPrefix(path, ServerRoot):
		path = strings.TrimPrefix(path, ServerRoot)
		at.Path, at.RawPath = strings.TrimSuffix(at.Path, "/v1"), ""
	}
	at.Path, at.RawPath = joinPath(&at, path)
	at.RawQuery = query
	return at
}

// mergeQuery returns the parameters of a base URL whose names are not in the query, and the query.
func mergeQuery(base, query string) string {
	given, _ := url.ParseQuery(query) // of what is malformed, the backend is the judge
	var all []string
	for parameter := range strings.SplitSeq(base, "&") {
		name, _, _ := strings.Cut(parameter, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if !given.Has(name) {
			all = append(all, parameter)
		}
	}
	if query != "" {
		all = append(all, query)
	}
	return strings.Join(all, "&")
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
