// Package proxytest has a scripted model server for tests and benchmarks of programs that
// call models. It plays OpenAI, vLLM, SGLang and Anthropic with one token per character,
// sends any bytes, and fails like real backends.
//
//	model := proxytest.NewServer(proxytest.VLLM(func(prompt string, choice int) string { return "hi" }))
//	defer model.Close()
//	call(model.BaseURL())
//
// A fault is a [Script] around another one, such as Cut(script, 3). The package must not know
// the proxy, or any other client.
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

// Request is a request that the server has received.
type Request struct {
	Method string
	Path   string
	Header http.Header
	Body   []byte
}

// Reply is the server's answer to a request. The zero value is an empty 200.
type Reply struct {
	Status      int    // 0 is 200
	ContentType string // empty is application/json
	Header      http.Header
	Body        string
	// Pieces are sent after Body, each as soon as Step returns.
	Pieces []string
	// Step, if set, is called before each piece. Its error ends the reply.
	Step func(ctx context.Context, i int) error
	// Cut closes the connection after the last byte without ending the reply.
	Cut bool
	// Reset does the same with a TCP reset.
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

// NewServer starts a server that answers each request by the script. It must be closed.
func NewServer(script Script) *Server {
	s := &Server{script: script, gone: make(chan struct{}, 4096)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// BaseURL returns the URL for clients and proxies, ending in /v1.
func (s *Server) BaseURL() string { return s.URL + "/v1" }

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Gone returns a channel with an element for each request whose client left before the end
// of the reply. It holds 4,096 of them; further ones are dropped.
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
		default: // nobody listens, and Close must not wait
		}
	}
	if !ok {
		// This closes the connection, unless it was reset.
		panic(http.ErrAbortHandler)
	}
}

// reply writes a reply and reports whether all of it was written.
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
		// What was written must be sent before the connection is cut.
		if err := flusher.Flush(); err != nil {
			return false
		}
	}
	if reply.Reset {
		return reset(w)
	}
	return !reply.Cut
}

// reset ends a connection with a TCP reset. It returns false: the reply is incomplete.
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
