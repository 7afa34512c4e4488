package project

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Prefix is the path below which projects are served.
const Prefix = "/p/"

// registryTTL is how long a host uses what the registry said about a project.
const registryTTL = 400 * time.Millisecond

// unusedTTL is the same for a project that no request uses.
const unusedTTL = 5 * time.Second

// Tenant is an open project.
type Tenant struct {
	Handler http.Handler
	// Drain ends waiting requests.
	Drain func()
	// InUse returns an error, CodeIllegalState, that says what would be lost if the project were archived now. Nil
	// means that nothing ever is.
	InUse func(ctx context.Context) error
	// Close closes the database. No request is running then.
	Close func(ctx context.Context) error
}

// Config configures a [Host]. Registry and Open are required.
type Config struct {
	Registry *Registry
	// Open opens the database of a project.
	Open func(ctx context.Context, name string) (*Tenant, error)
	// Idle is how long a project stays open without requests. Default 10 min.
	Idle time.Duration
	// CloseTimeout bounds the closing of a project. Default 30 s.
	CloseTimeout time.Duration
	// Logger receives errors; nil discards them.
	Logger *slog.Logger
}

// Host serves the projects of a registry. The caller closes it.
type Host struct {
	cfg Config

	mu       sync.Mutex
	draining bool
	open     map[string]*tenancy
	group    sync.WaitGroup // of openings, watches and closings
}

// tenancy is a project that is being opened, open, or being closed. The host's lock guards it.
type tenancy struct {
	name    string
	ready   chan struct{} // closed when tenant or err is set
	tenant  *Tenant
	err     error
	users   int           // running requests
	asked   time.Time     // when the registry was asked last
	leaving bool          // no further request may use it
	drained bool          // its Drain has been called
	closing bool          // its Close has been called
	gone    chan struct{} // closed when it is closed
	idle    *time.Timer   // nil until the first request has ended
}

// NewHost returns a host. It opens nothing. Its registry asks it from now on whether a project is in use.
func NewHost(cfg Config) *Host {
	cfg.Idle = cmp.Or(cfg.Idle, 10*time.Minute)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, 30*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	h := &Host{cfg: cfg, open: map[string]*tenancy{}}
	cfg.Registry.host.Store(h)
	return h
}

// unused returns an error if a project is in use, or if that is unknown.
func (h *Host) unused(ctx context.Context, name string) error {
	t, err := h.enter(ctx, name)
	if err == nil {
		defer h.leave(ctx, t)
		if t.tenant.InUse == nil {
			return nil
		}
		err = t.tenant.InUse(ctx)
	}
	switch agl.ErrorCode(err) {
	case "", agl.CodeNotFound: // another server has archived it
		return nil
	case agl.CodeIllegalState:
		return agl.Errorf(agl.CodeIllegalState, "the project %s is in use: %w", name, err)
	case agl.CodeInternal:
		h.cfg.Logger.Error("a project cannot be asked what is under way in it", "project", name, "error", err)
		return agl.Errorf(agl.CodeInternal, "the project %s cannot be asked what is under way in it; with force it is archived all the same", name)
	}
	return err
}

// ServeHTTP serves /p/NAME/….
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, inner, ok := split(r)
	if !ok && toPage(w, r) {
		return
	}
	if !ok {
		answer(w, http.StatusNotFound, agl.Errorf(agl.CodeNotFound, "the path must be /p/NAME/…, with the name of a project and without empty, . and .. segments"))
		return
	}
	t, err := h.enter(r.Context(), name)
	if err != nil {
		status, _ := wire.StatusOf(agl.ErrorCode(err))
		switch agl.ErrorCode(err) {
		case agl.CodeNotFound:
			status = http.StatusNotFound
		case agl.CodeUnavailable:
			backoff.SetRetryAfter(w.Header(), time.Second)
		case agl.CodeInternal:
			h.cfg.Logger.Error("a project cannot be opened", "project", name, "error", err)
			err = agl.Errorf(agl.CodeInternal, "the project %s cannot be opened", name)
		}
		answer(w, status, err)
		return
	}
	defer h.leave(r.Context(), t)
	t.tenant.Handler.ServeHTTP(w, inner)
}

// toPage redirects a browser from /p/NAME, which is the URL of the project's store, to its page at /p/NAME/. The target is relative,
// because a proxy in front may serve all this below a path.
func toPage(w http.ResponseWriter, r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	if !ok || checkName(name) != nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	w.Header().Set("Location", name+"/")
	w.WriteHeader(http.StatusTemporaryRedirect)
	return true
}

func answer(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(wire.AppendError(nil, err)) // fails only if the client has disconnected
}

// split returns the name of the project, and the request without its prefix. It rejects a path that other software
// could resolve to another project.
func split(r *http.Request) (name string, inner *http.Request, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), Prefix)
	name, rest, slash := strings.Cut(rest, "/")
	if !ok || !slash || checkName(name) != nil {
		return "", nil, false
	}
	segments := strings.Split(rest, "/")
	for i, segment := range segments {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || segment == "" && i < len(segments)-1 {
			return "", nil, false
		}
	}
	path, err := url.PathUnescape("/" + rest)
	if err != nil {
		return "", nil, false
	}
	inner = new(http.Request)
	*inner = *r
	u := *r.URL
	u.Path, u.RawPath = path, "/"+rest
	inner.URL = &u
	return name, inner, true
}

// enter returns an open project. The caller calls leave.
func (h *Host) enter(ctx context.Context, name string) (*tenancy, error) {
	asked := false // this call has asked the registry; then its answer counts, even if it took longer than registryTTL
	for {
		h.mu.Lock()
		if h.draining {
			h.mu.Unlock()
			return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
		}
		t := h.open[name]
		if t != nil && t.leaving {
			h.mu.Unlock()
			select { // then it is opened again, unless it is archived
			case <-t.gone:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if t != nil && (asked || time.Since(t.asked) < registryTTL) {
			t.users++
			h.mu.Unlock()
			return h.await(ctx, t)
		}
		h.mu.Unlock()
		if err := h.ask(ctx, name); err != nil {
			return nil, err
		}
		asked = true
	}
}

// ask asks the registry for a project, and opens or closes it.
func (h *Host) ask(ctx context.Context, name string) error {
	asked := time.Now()
	p, err := h.cfg.Registry.Get(ctx, name)
	if err == nil && p.ArchiveTime != nil {
		err = agl.Errorf(agl.CodeNotFound, "the project %s is archived", name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.open[name]
	switch {
	case agl.ErrorCode(err) == agl.CodeNotFound && t != nil:
		h.end(ctx, t)
		return err
	case err != nil || h.draining:
		return err
	case t == nil:
		t = &tenancy{name: name, ready: make(chan struct{}), gone: make(chan struct{})}
		h.open[name] = t
		h.group.Go(func() { h.start(context.WithoutCancel(ctx), t) })
	}
	t.asked = asked
	return nil
}

// start opens a project.
func (h *Host) start(ctx context.Context, t *tenancy) {
	tenant, err := h.cfg.Open(ctx, t.name)
	h.mu.Lock()
	t.tenant, t.err = tenant, err
	close(t.ready)
	defer h.mu.Unlock()
	switch {
	case t.err != nil:
		t.leaving = true
		delete(h.open, t.name)
		close(t.gone)
	case t.leaving:
		h.closeIfUnused(ctx, t)
	default:
		h.group.Go(func() { h.watch(ctx, t) })
	}
}

// watch asks the registry about an open project: requests that wait, such as for work or events, end soon after the
// project is archived, also if no further request comes, and so does the use of its database.
func (h *Host) watch(ctx context.Context, t *tenancy) {
	check := time.NewTicker(access.Recheck)
	defer check.Stop()
	for {
		select {
		case <-t.gone:
			return
		case <-check.C:
		}
		h.mu.Lock()
		ttl := registryTTL
		if t.users == 0 {
			ttl = unusedTTL
		}
		due := !t.leaving && time.Since(t.asked) >= ttl
		h.mu.Unlock()
		if due {
			asking, cancel := context.WithTimeout(ctx, access.Recheck)
			_ = h.ask(asking, t.name) // the next request gets any other error of the registry
			cancel()
		}
	}
}

// await waits until a project that was entered is open.
func (h *Host) await(ctx context.Context, t *tenancy) (*tenancy, error) {
	select {
	case <-t.ready:
	case <-ctx.Done():
		h.leave(ctx, t)
		return nil, ctx.Err()
	}
	if t.err != nil {
		return nil, t.err
	}
	return t, nil
}

// leave ends a request's use of a project.
func (h *Host) leave(ctx context.Context, t *tenancy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.users--
	switch {
	case t.leaving:
		h.closeIfUnused(ctx, t)
	case t.users > 0 || h.open[t.name] != t:
	case t.idle != nil:
		t.idle.Reset(h.cfg.Idle)
	default:
		ctx := context.WithoutCancel(ctx)
		t.idle = time.AfterFunc(h.cfg.Idle, func() { h.closeIdle(ctx, t) })
	}
}

// closeIdle closes a project that nobody has used for a while.
func (h *Host) closeIdle(ctx context.Context, t *tenancy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.users == 0 && !t.leaving {
		h.end(ctx, t)
	}
}

// end admits no further requests to a project, and closes it after the last one.
func (h *Host) end(ctx context.Context, t *tenancy) {
	if t.leaving {
		return
	}
	t.leaving = true
	if t.idle != nil {
		t.idle.Stop()
	}
	h.closeIfUnused(ctx, t)
}

// closeIfUnused closes a project that is leaving. While requests use it, it ends those that wait.
func (h *Host) closeIfUnused(ctx context.Context, t *tenancy) {
	select {
	case <-t.ready:
	default:
		return // start handles this
	}
	if t.err != nil || t.closing {
		return
	}
	if !t.drained {
		t.drained = true
		t.tenant.Drain()
	}
	if t.users > 0 {
		return
	}
	t.closing = true
	ctx = context.WithoutCancel(ctx)
	h.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, h.cfg.CloseTimeout)
		defer cancel()
		err := t.tenant.Close(ctx)
		if err != nil {
			h.cfg.Logger.Error("closing a project failed", "project", t.name, "error", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		t.err = err
		delete(h.open, t.name)
		close(t.gone)
	})
}

// Drain refuses further requests and ends those that wait.
func (h *Host) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for _, t := range h.open {
		select {
		case <-t.ready:
			if t.err == nil && !t.drained {
				t.drained = true
				t.tenant.Drain()
			}
		default:
		}
	}
}

// Close closes all projects, each once it has no running requests.
func (h *Host) Close(ctx context.Context) error {
	h.Drain()
	h.mu.Lock()
	var open []*tenancy
	for _, t := range h.open {
		h.end(ctx, t)
		open = append(open, t)
	}
	h.mu.Unlock()
	var failed error
	for _, t := range open {
		select {
		case <-t.gone:
			failed = errors.Join(failed, t.err)
		case <-ctx.Done():
			return errors.Join(failed, agl.Errorf(agl.CodeUnavailable, "the project %s is still in use: %w", t.name, context.Cause(ctx)))
		}
	}
	h.group.Wait()
	return failed
}
