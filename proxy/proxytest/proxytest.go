// Package proxytest holds a model server whose replies are scripted, for tests
// and benchmarks of whatever calls models. It plays the wire forms of OpenAI, vLLM,
// SGLang and Anthropic with one token per character, sends any bytes at all, and
// fails in the ways in which backends do.
package proxytest

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// Request is a request that the server has got.
type Request struct {
	Method string
	Path   string
	Header http.Header
	Body   []byte
}

// Reply is what the server does with a request. Its zero value is an empty 200.
type Reply struct {
	Status      int    // 0 is 200
	ContentType string // empty is application/json
	Header      http.Header
	Body        string
	// Pieces, after Body, are sent one by one, each as soon as Step lets it.
	Pieces []string
	// Step, if set, is called before each piece; its error ends the reply.
	Step func(ctx context.Context, i int) error
	// Cut closes the connection behind the last byte without ending the reply.
	Cut bool
	// Reset does so with a TCP reset.
	Reset bool
}

// Server is a scripted model server.
type Server struct {
	*httptest.Server
	script Script
	gone   chan struct{}

	mu       sync.Mutex
	requests []Request
}

// NewServer starts a server that answers each request by the script. Close it
// when done.
func NewServer(script Script) *Server {
	s := &Server{script: script, gone: make(chan struct{}, 4096)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// BaseURL is the URL that clients and proxies take, ending in /v1.
func (s *Server) BaseURL() string { return s.URL + "/v1" }

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Gone receives once for each request whose client left before the reply's end.
// Of those that nobody receives the first 4,096 are kept.
func (s *Server) Gone() <-chan struct{} { return s.gone }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request := Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body}
	s.mu.Lock()
	s.requests = append(s.requests, request)
	s.mu.Unlock()
	ok := s.reply(w, r, s.script(r.Context(), request))
	if r.Context().Err() != nil {
		select {
		case s.gone <- struct{}{}:
		default: // nobody listens, and Close must not wait for that
		}
	}
	if !ok {
		// Ends the connection, unless that was done.
		panic(http.ErrAbortHandler)
	}
}

// reply reports whether the reply was written to its end.
func (s *Server) reply(w http.ResponseWriter, r *http.Request, reply Reply) bool {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if reply.ContentType != "" {
		h.Set("Content-Type", reply.ContentType)
	}
	maps.Copy(h, reply.Header)
	if reply.Reset && reply.Body == "" && len(reply.Pieces) == 0 {
		return reset(w)
	}
	if reply.Status != 0 {
		w.WriteHeader(reply.Status)
	}
	if _, err := io.WriteString(w, reply.Body); err != nil {
		return false
	}
	flusher := http.NewResponseController(w)
	for i, piece := range reply.Pieces {
		if reply.Step != nil {
			if err := flusher.Flush(); err != nil {
				return false
			}
			if err := reply.Step(r.Context(), i); err != nil {
				return false
			}
		}
		if _, err := io.WriteString(w, piece); err != nil {
			return false
		}
		if err := flusher.Flush(); err != nil {
			return false
		}
	}
	if reply.Cut || reply.Reset {
		// What was written must be on its way before the connection is cut.
		if err := flusher.Flush(); err != nil {
			return false
		}
	}
	if reply.Reset {
		return reset(w)
	}
	return !reply.Cut
}

// reset ends a connection with a TCP reset. It reports false, as the reply did
// not come to its end.
func reset(w http.ResponseWriter) bool {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return false
		}
	}
	return false
}
