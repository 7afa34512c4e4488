// Package tinkertest tests what trains over the Tinker protocol. Its [Server] serves an engine of the test's choice,
// enforces the protocol, and fails on demand: it loses, delays, repeats or refuses requests, drops results, restarts. Its
// [Engine] wraps an engine, records every gradient, and has the limits of engines that run elsewhere; [Imitate] makes the
// two behave like an engine of the table in tinker/engines.
//
//	fake, err := tinkertest.New(tinkertest.Config{
//		NewService: func() (tinker.Service, error) { return engine, nil },
//		Fault: func(c tinkertest.Call) tinkertest.Fault {
//			if c.N == 7 {
//				return tinkertest.LoseAnswer
//			}
//			return tinkertest.None
//		},
//	})
//
// The package must not know what is trained.
package tinkertest

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/wire"
)

// Fault is what goes wrong with one request; empty is nothing.
type Fault string

// The faults. Pending, TryAgain, TooEarly and Gone apply to retrieve_future; for other requests they are None.
const (
	None        Fault = ""
	LoseRequest Fault = "lose request" // the connection breaks before the server sees the request
	LoseAnswer  Fault = "lose answer"  // the connection breaks after the request was served
	Repeat      Fault = "repeat"       // the request is served twice; the second answer is sent
	Delay       Fault = "delay"        // the answer is late, by Config.Delay
	Refuse      Fault = "refuse"       // 429; the request is not served
	Unavailable Fault = "unavailable"  // 503; the request is not served
	BadGateway  Fault = "bad gateway"  // 502 in place of the answer; the request is served
	Pending     Fault = "pending"      // 408: the result is not there yet
	TryAgain    Fault = "try again"    // the same, as 200 with a type
	TooEarly    Fault = "too early"    // the same, as 425
	Gone        Fault = "gone"         // 410: the result is gone
	Restart     Fault = "restart"      // the server restarts before the request; sessions, models and snapshots in memory are lost
)

// Faults returns all faults but None.
func Faults() []Fault {
	return []Fault{LoseRequest, LoseAnswer, Repeat, Delay, Refuse, Unavailable, BadGateway, Pending, TryAgain, TooEarly, Gone, Restart}
}

// Call is an incoming request.
type Call struct {
	// N counts requests from 0, across restarts.
	N int
	// Path is the path of the call, such as /optim_step.
	Path string
}

// Config configures a [Server]. NewService is required.
type Config struct {
	// NewService makes the engine, at the start and at each restart.
	NewService func() (tinker.Service, error)
	// Server configures the server of the protocol; its Service is ignored.
	Server server.Config
	// Fault says what goes wrong with each request; nil means nothing does. It is called by one goroutine at a time.
	Fault func(Call) Fault
	// EarlyResults allows the answer to the submit of a sample to hold its result, an extension of this project.
	EarlyResults bool
	// Delay is the delay of the fault Delay; zero means 5 s.
	Delay time.Duration
}

// Server is an [http.Handler].
type Server struct {
	cfg Config

	mu    sync.Mutex
	calls int
	inner *server.Server
	old   []*server.Server // from before restarts
}

// New makes a server, which the caller closes.
func New(cfg Config) (*Server, error) {
	if cfg.NewService == nil {
		return nil, agl.Errorf(agl.CodeInvalid, "tinkertest: NewService is nil; an engine is required")
	}
	cfg.Delay = cmp.Or(cfg.Delay, 5*time.Second)
	s := &Server{cfg: cfg}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.start()
}

func (s *Server) start() error {
	service, err := s.cfg.NewService()
	if err != nil {
		return err
	}
	cfg := s.cfg.Server
	cfg.Service = service
	inner, err := server.New(cfg)
	if err != nil {
		return err
	}
	if s.inner != nil {
		s.old = append(s.old, s.inner)
	}
	s.inner = inner
	return nil
}

// Close cancels the running calls.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, inner := range append(s.old, s.inner) {
		err = errors.Join(err, inner.Close())
	}
	return err
}

// Calls is the number of requests so far.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// arrive counts a request and decides its fault.
func (s *Server) arrive(path string) (Fault, http.Handler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := Call{N: s.calls, Path: path}
	s.calls++
	if s.cfg.Fault == nil {
		return None, s.inner, nil
	}
	fault := s.cfg.Fault(call)
	if fault == Restart {
		// The calls of the old server run to their end; nobody sees their results.
		if err := s.start(); err != nil {
			return fault, nil, err
		}
	}
	return fault, s.inner, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path[min(len(wire.Prefix), len(r.URL.Path)):]
	fault, inner, err := s.arrive(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has left
	}
	if !s.cfg.EarlyResults {
		r.Header.Del(wire.PreferHeader)
	}
	serve := func() *httptest.ResponseRecorder {
		rec := forward(inner, r, r.URL.Path, body)
		if path == wire.Sample && fault != None {
			// The sample must not run on beside the training with which the client may continue: some engines forbid that.
			forward(inner, r, wire.Prefix+wire.RetrieveFuture, rec.Body.Bytes())
		}
		return rec
	}
	if path == wire.RetrieveFuture {
		if fault == Gone {
			serve() // there was a result
		}
		if disturbResult(w, fault) {
			return
		}
	}
	switch fault {
	case LoseRequest:
		panic(http.ErrAbortHandler)
	case LoseAnswer:
		serve()
		panic(http.ErrAbortHandler)
	case Refuse:
		http.Error(w, `{"detail":"too many requests"}`, http.StatusTooManyRequests)
		return
	case Unavailable:
		http.Error(w, `{"detail":"unavailable"}`, http.StatusServiceUnavailable)
		return
	case BadGateway:
		serve()
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
		return
	case Repeat:
		serve()
	case Delay:
		_ = backoff.Sleep(r.Context(), s.cfg.Delay) // a client that left is answered, too
	}
	rec := serve()
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	// The client of the test may be gone.
	_, _ = w.Write(rec.Body.Bytes())
}

// forward passes a request on, with another path and body.
func forward(to http.Handler, r *http.Request, path string, body []byte) *httptest.ResponseRecorder {
	again := r.Clone(r.Context())
	again.URL.Path, again.Body = path, io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	to.ServeHTTP(rec, again)
	return rec
}

// disturbResult writes the answer of a fault that applies to results. It reports whether there is one.
func disturbResult(w http.ResponseWriter, fault Fault) bool {
	status := map[Fault]int{Pending: http.StatusRequestTimeout, TryAgain: http.StatusOK, TooEarly: http.StatusTooEarly, Gone: http.StatusGone}[fault]
	if status == 0 {
		return false
	}
	body := `{"type":"try_again","request_id":"?","queue_state":"paused_capacity"}`
	if fault == Gone {
		body = `{"detail":"the promise is gone"}`
	}
	w.Header().Set("Content-Type", wire.JSONType)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return true
}
