// Package inference keeps an inference server running as a child process: it starts the
// program, waits until it answers, starts it again when it dies, and ends it with
// everything that it has started.
//
//	server, err := inference.Start(ctx, inference.Config{Command: []string{"vllm", "serve", model}, BaseURL: "http://127.0.0.1:8000/v1"})
//	defer server.Close()
//	client := &http.Client{Transport: server.Transport(http.DefaultTransport)} // its requests wait while the server is started again
//
// It knows processes and one HTTP route. It must not know what the server serves, nor
// who calls it.
package inference

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
)

// Config configures [Start]. Command and BaseURL are required.
type Config struct {
	// Command is the program and its arguments, Dir where it starts, Env its
	// environment.
	Command []string
	Dir     string
	Env     []string
	// BaseURL is where the server will listen, such as http://127.0.0.1:8000/v1.
	BaseURL string
	// Ready is a URL, or a path from the root of BaseURL, that answers with a status
	// below 300 once the server is ready; empty means /health.
	Ready string
	// StartTimeout bounds the time until then, for every start; zero means 10 minutes.
	StartTimeout time.Duration
	// Restarts is how often in succession a server that has died is started again; zero
	// means 3, less than zero never. A server that was ready for Stable starts a new
	// count; zero means 10 minutes.
	Restarts int
	Stable   time.Duration
	// GracePeriod is the time between SIGTERM and SIGKILL; zero means 10 s.
	GracePeriod time.Duration
	// TLS says whom the check for readiness trusts; nil trusts the CAs of the system.
	TLS *tls.Config
	// Lost is called once when the server is not started again; nil does nothing.
	Lost func(error)
	// Output gets what the server writes to its output streams; nil keeps only the last
	// lines, for errors.
	Output io.Writer
	// Logger gets deaths and restarts; nil discards them.
	Logger *slog.Logger
}

// The defaults of Config.
const (
	DefaultReady        = "/health"
	defaultStartTimeout = 10 * time.Minute
	DefaultRestarts     = 3
	defaultGracePeriod  = 10 * time.Second

	defaultStable = 10 * time.Minute
)

func (c Config) withDefaults() Config {
	c.Ready = cmp.Or(c.Ready, DefaultReady)
	c.StartTimeout = cmp.Or(c.StartTimeout, defaultStartTimeout)
	c.Restarts = cmp.Or(c.Restarts, DefaultRestarts)
	c.Stable = cmp.Or(c.Stable, defaultStable)
	c.GracePeriod = cmp.Or(c.GracePeriod, defaultGracePeriod)
	if c.Lost == nil {
		c.Lost = func(error) {}
	}
	c.Output = cmp.Or(c.Output, io.Discard)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// restartDelays are those between a death and the next start.
var restartDelays = backoff.Exponential{First: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}

// Server is a running inference server. Make it with [Start]; its owner closes it.
type Server struct {
	cfg  Config
	base *url.URL
	// probes asks whether the server is ready.
	probes *http.Client

	stop  context.CancelCauseFunc
	ended chan struct{} // closed when the process is gone for good

	mu      sync.Mutex
	running chan struct{} // closed while the server is ready; replaced when it dies
	died    chan struct{} // closed, and replaced, when it dies; or when it has failed for good
	failure error         // why it is not started again; nil while it may be
}

// Start starts the server and returns when it is ready. One that ends before, or is not
// ready in time, is an error with its last lines; it is not started a second time. ctx
// bounds only the start.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Command) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "inference: Command: none given")
	}
	base, err := url.Parse(cfg.BaseURL)
	if err != nil || base.Host == "" {
		return nil, agl.Errorf(agl.CodeInvalid, "inference: BaseURL: got %q, must be a URL such as http://127.0.0.1:8000/v1", cfg.BaseURL)
	}
	ready, err := base.Parse(cfg.Ready)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "inference: Ready: %w", err)
	}
	cfg.Ready = ready.String()
	if err := checkFree(ctx, base); err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg.TLS}
	const probeTimeout = 10 * time.Second
	s := &Server{cfg: cfg, base: base, ended: make(chan struct{}), running: make(chan struct{}), died: make(chan struct{}), probes: &http.Client{Transport: transport, Timeout: probeTimeout}}
	p, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	close(s.running)
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.ended)
		s.keep(serving, p)
	}()
	return s, nil
}

// checkFree makes sure that nobody else listens where the server will: another program
// would be taken for it.
func checkFree(ctx context.Context, base *url.URL) error {
	port := cmp.Or(base.Port(), base.Scheme) // a dialer knows the ports of http and https
	address := net.JoinHostPort(base.Hostname(), port)
	const timeout = time.Second
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil //nolint:nilerr // nobody listens, as it should be
	}
	_ = conn.Close() // nothing was sent
	return agl.Errorf(agl.CodeConflict, "another program listens on %s already; end it, or choose another port for the server", address)
}

// launch starts the process and waits until it is ready. If it does not become ready,
// nothing of it is left.
func (s *Server) launch(ctx context.Context) (*program, error) {
	p, err := start(s.cfg)
	if err != nil {
		return nil, err
	}
	late := agl.Errorf(agl.CodeUnavailable, "%s did not answer within %s", s.cfg.Ready, s.cfg.StartTimeout)
	waiting, cancel := context.WithTimeoutCause(ctx, s.cfg.StartTimeout, late)
	defer cancel()
	if err := s.awaitReady(waiting, p); err != nil {
		p.group.End(s.cfg.GracePeriod)
		return nil, fmt.Errorf("the inference server is not ready: %w%s", err, p.said())
	}
	return p, nil
}

// awaitReady returns nil once the server answers.
func (s *Server) awaitReady(ctx context.Context, p *program) error {
	const pace = 100 * time.Millisecond
	for {
		if s.answers(ctx) {
			return nil
		}
		select {
		case <-p.group.Gone():
			return fmt.Errorf("its program ended with %s", p.state())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pace):
		}
	}
}

// answers reports whether the server says that it is ready.
func (s *Server) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Ready, http.NoBody)
	if err != nil {
		return false // Start has parsed the URL
	}
	resp, err := s.probes.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // only the status counts
	return resp.StatusCode < http.StatusMultipleChoices
}

// keep starts the server again when it dies, until ctx ends or it dies too often.
func (s *Server) keep(ctx context.Context, p *program) {
	deaths := 0
	for {
		since := time.Now()
		select {
		case <-ctx.Done():
			p.group.End(s.cfg.GracePeriod)
			s.fail(context.Cause(ctx))
			return
		case <-p.group.Gone():
		}
		if time.Since(since) >= s.cfg.Stable {
			deaths = 0
		}
		s.mu.Lock()
		close(s.died)
		s.running, s.died = make(chan struct{}), make(chan struct{})
		s.mu.Unlock()
		died := fmt.Errorf("the inference server ended with %s%s", p.state(), p.said())
		if p = s.relaunch(ctx, &deaths, died); p == nil {
			return
		}
		s.mu.Lock()
		close(s.running)
		s.mu.Unlock()
		s.cfg.Logger.Warn("the inference server is ready again", "restarts", deaths)
	}
}

// relaunch returns a server that is ready, or nil when there will be none.
func (s *Server) relaunch(ctx context.Context, deaths *int, died error) *program {
	for {
		if *deaths >= s.cfg.Restarts {
			err := agl.Errorf(agl.CodeUnavailable, "%w; it was restarted %d times", died, *deaths)
			s.cfg.Lost(err) // before the calls that wait fail with it
			s.fail(err)
			return nil
		}
		s.cfg.Logger.Warn("the inference server died and is started again", "error", died)
		if err := restartDelays.Wait(ctx, *deaths); err != nil {
			s.fail(err)
			return nil
		}
		*deaths++
		p, err := s.launch(ctx)
		if err == nil {
			return p
		}
		if ctx.Err() != nil {
			s.fail(context.Cause(ctx))
			return nil
		}
		died = err
	}
}

// fail lets callers that wait for the server go on without it.
func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return
	}
	s.failure = err
	close(s.died)
	select {
	case <-s.running:
	default:
		close(s.running)
	}
}

// Await returns nil when the server is ready, or why it will not be.
func (s *Server) Await(ctx context.Context) error {
	_, err := s.await(ctx)
	return err
}

// await is Await that returns also what is closed when the server dies.
func (s *Server) await(ctx context.Context) (died <-chan struct{}, err error) {
	s.mu.Lock()
	running, died := s.running, s.died
	s.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return died, s.failure
}

// Transport returns a transport whose requests to the server wait while it is started
// again, and are sent again if they find it dying. One that its death breaks off is an
// error. Other requests go to others at once.
func (s *Server) Transport(others http.RoundTripper) http.RoundTripper {
	return transport{s, others}
}

type transport struct {
	server *Server
	others http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != t.server.base.Host {
		return t.others.RoundTrip(req)
	}
	for {
		died, err := t.server.await(req.Context())
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // the error of waiting is the one that counts
			}
			return nil, err
		}
		resp, err := t.others.RoundTrip(req)
		if (req.Body != nil && req.GetBody == nil) || !t.server.dying(req.Context(), died, resp, err) {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // the next one counts
		}
		req = req.WithContext(req.Context()) // a copy: the caller's is not changed
		if req.Body != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// dying returns whether a request failed because the server was dying, once it has died: it may refuse connections, or
// answer calls with errors and its check for readiness, too, for Config.GracePeriod at most before its process ends.
func (s *Server) dying(ctx context.Context, died <-chan struct{}, resp *http.Response, err error) bool {
	failed := resp != nil && resp.StatusCode >= http.StatusInternalServerError
	if !errors.Is(err, syscall.ECONNREFUSED) && (!failed || s.answers(ctx)) {
		return false
	}
	select {
	case <-died:
		return true
	case <-time.After(s.cfg.GracePeriod):
	case <-ctx.Done():
	}
	return false
}

// errClosed is what callers get after Close.
var errClosed = agl.Errorf(agl.CodeUnavailable, "the inference server was stopped with its run")

// Close ends the server and everything that it has started, and returns when nothing of
// it is left.
func (s *Server) Close() {
	s.stop(errClosed)
	<-s.ended
}
