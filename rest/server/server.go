package server

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/rest/project"
)

// Config configures a [Server]. Store is required; the zero value of every other
// field is usable.
type Config struct {
	// Store is the store to serve. A claim whose answer is lost is returned if the store's Capabilities allow that;
	// otherwise it waits for its deadline.
	Store agl.Store
	// Token is required of every request, as a bearer token or as the password of HTTP
	// Basic, except GET /v1/agl/health and /v1/agl/ready. If it is empty, every request
	// is admitted.
	Token string
	// Keys are accepted besides the Token, each for its scopes. They are managed at /v1/agl/keys. If nil, there are
	// none.
	Keys *access.Keys
	// Collector serves GET /v1/agl/collect. If nil, the answer is 501.
	Collector agl.Collector
	// Audit records what callers do with the scopes train and admin; GET /v1/agl/audit shows it. If nil, nothing is
	// recorded. Without a Token only callers with a key are known, and recorded.
	Audit *access.Audit
	// Failed limits how often an address may send a wrong token or key, before everything from there except valid
	// keys gets 429. Servers with the same Token share it. If nil, there is no limit.
	Failed *access.Throttle
	// SpanSecret is the secret of span tokens, with which agents send their spans. Default the Token: whoever has it
	// can then create span tokens. Servers of several projects with the same Token need different secrets, so that no
	// span token is valid for another project.
	SpanSecret string
	// SignIn lets people sign in through a third party, besides keys and the Token. If nil, nobody does.
	SignIn SignIn
	// Tokens checks the bearer tokens of machines, such as JWTs; CodeUnavailable if it cannot. If nil, there are
	// none.
	Tokens access.Checker
	// Certificates maps the names in client certificates, which the listener has verified, to scopes. A certificate
	// with another name grants nothing.
	Certificates access.Grants
	// PublicURL is the URL by which browsers reach the server. Who begins to sign in by another one is sent there, because
	// SignIn's third party sends browsers back there. Default "", which sends nobody.
	PublicURL string
	// BasePath is the path at which browsers see the server, such as /p/search. Sessions are valid below it. Default
	// "".
	BasePath string
	// SecureCookies says that browsers reach the server by HTTPS, even if its own listener does not encrypt.
	SecureCookies bool
	// Projects are managed at /v1/agl/projects. If nil, there are none.
	Projects *project.Registry
	// CORSOrigins are the origins whose pages may call the server; "*" means every origin, without the credentials
	// that browsers store. Requests of other pages cannot change anything.
	CORSOrigins []string
	// AllowedHosts are the names, besides addresses and localhost, under which the server may be called. If nil,
	// every name is allowed. A server without a Token should name some or none ([]string{}), so that pages cannot
	// reach it by DNS rebinding.
	AllowedHosts []string
	// MaxBodyBytes bounds a request's body, after decompression. Default 64 MiB.
	MaxBodyBytes int64
	// EventHeartbeat is how often an idle event stream carries a comment, so that a dead connection is noticed.
	// Default 15 s.
	EventHeartbeat time.Duration
	// Metrics counts the requests; GET /metrics shows it. Default a new one.
	Metrics *Metrics
	// UI serves GET and HEAD of the paths outside /v1, without authorization, so it must not serve anything secret.
	// Default a plain page at / with the version and some links.
	UI http.Handler
	// Version is shown on the plain page.
	Version string
	// Logger receives errors whose details clients do not see. Default discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 64<<20)
	c.EventHeartbeat = cmp.Or(c.EventHeartbeat, wire.EventHeartbeat)
	c.SpanSecret = cmp.Or(c.SpanSecret, c.Token)
	c.Version = cmp.Or(c.Version, "(devel)")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "rest/server: Store: got nil, must be a store")
	}
	if err := bounds.NotNegative("rest/server: ", bounds.Number("MaxBodyBytes", c.MaxBodyBytes), bounds.Number("EventHeartbeat", c.EventHeartbeat)); err != nil {
		return err
	}
	return secret.Check("rest/server: Token", c.Token)
}

// Server serves the API over a store: as an http.Handler, which starts no goroutine that outlives a request, or by
// [Server.Serve].
type Server struct {
	shared  *shared
	guard   *httpserver.Guard
	auth    *auth
	login   *login
	audit   audit
	cors    cors
	metrics *Metrics
	mux     *http.ServeMux
	ui      bool // a page serves the paths outside /v1
	routes  map[string]methods

	mu      sync.Mutex
	running *httpserver.Running // of Serve; nil before
	stopped bool                // by Shutdown
}

var _ http.Handler = (*Server)(nil)

// New returns a server for config.Store; CodeInvalid.
func New(config Config) (_ *Server, err error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.Metrics == nil {
		if config.Metrics, err = NewMetrics(prometheus.NewRegistry()); err != nil {
			return nil, err
		}
	}
	guard, err := httpserver.NewGuard(config.CORSOrigins, config.AllowedHosts)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "rest/server: CORSOrigins: %v", err)
	}
	s := &Server{
		guard:   guard,
		shared:  &shared{maxBody: config.MaxBodyBytes, log: config.Logger, drain: newDrain(), open: access.NewOpen(access.MaxOpen), lists: access.NewOpen(maxLists), jsonType: []string{"application/json"}},
		audit:   audit{kept: config.Audit, open: config.Token == ""},
		auth:    newAuth(&config),
		cors:    cors{config.CORSOrigins},
		metrics: config.Metrics,
		mux:     http.NewServeMux(),
		routes:  map[string]methods{},
	}
	s.shared.auth = s.auth
	s.login = &login{s.auth, config.SignIn, config.PublicURL, config.BasePath, config.SecureCookies, config.Projects != nil}
	receiver, err := newOTLPReceiver(config.Store)
	if err != nil {
		return nil, err
	}
	s.routeAPI(config)
	s.route(wire.Traces, methods{http.MethodPost: {access.Senders, receiver.exportTraces}})
	s.route(wire.Metrics, methods{http.MethodPost: {access.Train, receiver.exportMetrics}})
	for _, signal := range []string{"/v1/logs", "/v1/development/profiles"} {
		s.route(signal, methods{http.MethodPost: {access.Senders, receiver.unsupported}})
	}
	metrics := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	if store, ok := config.Store.(queueReader); ok {
		metrics = s.metrics.queue.refreshing(store, metrics)
	}
	for _, path := range []string{"/metrics", "/v1/prometheus", "/v1/prometheus/{$}"} {
		s.route(path, methods{http.MethodGet: {access.Readers, forward(metrics)}})
	}
	s.route("/v1/", methods{})
	if s.ui = config.UI != nil; s.ui {
		s.route("/", methods{http.MethodGet: {access.Public, forward(config.UI)}, http.MethodHead: {access.Public, forward(config.UI)}})
	} else {
		s.route("/", methods{})
		s.route("/{$}", methods{http.MethodGet: {access.Readers, index(config.Version)}, http.MethodHead: {access.Readers, index(config.Version)}})
	}
	return s, nil
}

// routeAPI adds the paths below [wire.Prefix].
func (s *Server) routeAPI(config Config) {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const rollout, attempt = "{" + rolloutID + "}", "{" + attemptID + "}"
	store, can := config.Store, config.Store.Capabilities()
	p := &probes{store: store}
	e := events{store, config.EventHeartbeat}
	q := &queue{store, can.ReturnClaims}
	k, prj := keys{config.Keys, config.SpanSecret}, projects{config.Projects}
	r, res, w, sp := rollouts{store}, resources{store}, workers{store}, spans{store, can.QuerySpansJSON, can.QueryShortSpans, newSpanBases(baseMemory, config.MaxBodyBytes)}
	sig, rw, rn, rel := signals{store}, rewards{store}, newRuns(store), newReleases(store)
	const read, run, train, admin = access.Readers, access.Runner | access.Train, access.Train, access.Admin
	const sends = access.Senders &^ access.Agent
	for path, m := range map[string]methods{
		wire.Health:     {get: {access.Public, p.health}, http.MethodHead: {access.Public, p.health}}, // monitors ask by HEAD, too
		wire.Ready:      {get: {access.Public, p.ready}, http.MethodHead: {access.Public, p.ready}},
		wire.Statistics: {get: {read, p.statistics}},
		wire.Events:     {get: {read, e.stream}},

		wire.StatusCounts: {get: {read, newStatusCounts(store).get}},
		wire.CallCounts:   {get: {read, s.metrics.calls.get}},

		wire.Enqueue: {post: {train, q.enqueue}},
		wire.Dequeue: {post: {access.Runner, q.dequeue}},
		wire.Return:  {post: {access.Runner, q.returnClaims}},
		wire.Close:   {post: {train, q.close}},
		wire.Open:    {post: {train, q.open}},
		wire.Waits:   {post: {read, q.wait}},
		wire.Collect: {get: {read, collect{config.Collector}.batch}},

		wire.Rollouts:                            {get: {read, r.query}, post: {run | access.Live, r.start}},
		wire.SearchRollouts:                      {get: {read, r.find}, post: {read, r.query}},
		wire.Rollout(rollout):                    {get: {read, r.get}, post: {train, r.update}, del: {admin, r.delete}},
		wire.Cancel(rollout):                     {post: {train, r.cancel}},
		wire.Attempts(rollout):                   {get: {read, r.queryAttempts}, post: {run, r.startAttempt}},
		wire.SearchAttempts(rollout):             {post: {read, r.queryAttempts}},
		wire.Attempt(rollout, agl.LatestAttempt): {get: {read, r.latestAttempt}, post: {run, r.updateAttempt}},
		wire.Attempt(rollout, attempt):           {post: {run, r.updateAttempt}},
		wire.SpanTokenOf(rollout, attempt):       {post: {run, k.spanToken}},

		wire.RewardsOf(rollout): {post: {sends, withBody(rw.add)}},

		wire.SignalsOf(rollout, "triplets"):     {get: {read, sig.triplets}},
		wire.SignalsOf(rollout, "trajectories"): {get: {read, sig.trajectories}},
		wire.SignalsOf(rollout, "messages"):     {get: {read, sig.messages}},
		wire.Batches:                            {post: {read, sig.batch}},

		wire.Runs:                          methods{get: {read, rn.query}, post: {train, rn.start}}.unless(rn.missing()),
		wire.Run("{" + runID + "}"):        methods{get: {read, rn.get}, post: {train, rn.update}, del: {admin, rn.delete}}.unless(rn.missing()),
		wire.RunMetrics("{" + runID + "}"): methods{get: {read, rn.queryMetrics}, post: {train, withBody(rn.addMetrics)}}.unless(rn.missing()),

		wire.Releases:                       methods{get: {read, rel.list}, post: {train, withBody(rel.propose)}}.unless(rel.missing()),
		wire.CurrentRelease:                 methods{get: {read | access.Live, rel.current}}.unless(rel.missing()),
		wire.Release("{" + releaseID + "}"): methods{get: {read, rel.get}}.unless(rel.missing()),
		wire.ReleaseAct("{"+releaseID+"}", "{"+releaseAct+"}"): methods{post: {train, rel.act}}.unless(rel.missing()),

		wire.Resources:                            {get: {read, res.query}, post: {train, res.add}},
		wire.LatestResources:                      {get: {read, res.latest}},
		wire.ResourcesOf("{" + resourcesID + "}"): {get: {read, res.get}, post: {train, res.update}},

		wire.Workers:                      {get: {read, w.query}},
		wire.SearchWorkers:                {post: {read, w.query}},
		wire.Worker("{" + workerID + "}"): {get: {read, w.get}, post: {access.Runner, w.update}},

		wire.Spans:                {get: {read, sp.query}, post: {sends, sp.add}},
		wire.SpansBatch:           {post: {sends, sp.addBatch}},
		wire.SearchSpans:          {post: {read, sp.query}},
		wire.NextSequenceID:       {post: {sends, sp.nextSequenceID}},
		wire.NextSequenceIDsBatch: {post: {sends, sp.nextSequenceIDs}},

		wire.Login:             {get: {access.Public, s.login.answer}, post: {access.Public, s.login.begin}},
		wire.Logout:            {post: {access.Public, s.login.end}},
		wire.LoginOIDC:         {get: {access.Public, s.login.forPeople(s.login.beginOIDC)}},
		wire.LoginOIDCCallback: {get: {access.Public, s.login.forPeople(s.login.endOIDC)}},

		wire.WhoAmI:                           {get: {access.Any, k.whoAmI}},
		wire.CheckKey:                         methods{post: {access.Any, withBody(k.whose)}}.unless(k.missing()),
		wire.Keys:                             methods{get: {admin, k.list}, post: {admin, withBody(k.create)}}.unless(k.missing()),
		wire.RevokedAttempts:                  methods{get: {run, k.revokedAttempts}, post: {admin, withBody(k.revokeAttempt)}}.unless(k.missing()),
		wire.Key("{" + keyID + "}"):           methods{del: {admin, k.revoke}}.unless(k.missing()),
		wire.Audit:                            methods{get: {admin, s.audit.list}, post: {train, withBody(s.audit.add)}}.unless(s.audit.missing()),
		wire.Projects:                         methods{get: {admin, prj.list}, post: {admin, withBody(prj.create)}}.unless(prj.missing()),
		wire.Project("{" + projectName + "}"): methods{post: {admin, withBody(prj.update)}}.unless(prj.missing()),
		wire.KeyUsage("{" + keyID + "}"):      methods{post: {run, withBody(k.charge)}}.unless(k.missing()),
	} {
		s.route(wire.Prefix+path, m)
	}
}

// Routes returns all routes as "METHOD /path/{placeholder}", in order.
func (s *Server) Routes() []string {
	var routes []string
	for path, m := range s.routes {
		for method := range m {
			routes = append(routes, method+" "+path)
		}
	}
	slices.Sort(routes)
	return routes
}

// Drain ends blocked dequeues, waits and event streams at once; they are answered with what there is. Other requests
// that have begun are finished. Later requests are refused with 503, so that none runs on a connection that is about
// to close, and /v1/agl/ready answers 503. Call Drain before http.Server.Shutdown, which waits for the answers.
func (s *Server) Drain() { s.shared.drain.begin() }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	x := s.shared.begin(w, r)
	defer s.finish(x, start) //nolint:contextcheck // the request has it
	if err := s.guard.Check(r); err != nil {
		x.fail(wire.ErrDetail(http.StatusForbidden, err.Error()+"; see --allowed-host and --cors-origin"))
		return
	}
	if s.cors.apply(x) {
		return
	}
	if strings.HasPrefix(r.URL.Path, "/p/") { // where there are projects, their servers answer
		x.fail(wire.ErrDetail(http.StatusNotFound, "this server has no projects, so nothing is below /p/: leave /p/NAME out of the URL, or start the server with agl store --projects"))
		return
	}
	if !s.public(r) {
		if err := s.auth.identify(x); err != nil { //nolint:contextcheck // the request has it
			s.auth.refuse(x, err)
			return
		}
		if s.shared.drain.begun() {
			x.Header()["Connection"] = []string{"close"}
			x.fail(agl.Errorf(agl.CodeUnavailable, "the server is shutting down"))
			return
		}
	}
	if segment := dotSegment(r.URL.EscapedPath()); segment != "" {
		x.fail(wire.ErrDetail(http.StatusNotFound, "the path has the segment "+segment+", which stands for another path; write it as "+strings.ReplaceAll(segment, ".", "%2E")))
		return
	}
	s.mux.ServeHTTP(x, r)
}

// dotSegment returns the first segment of an escaped path that is . or .., which a mux would answer with a redirect
// to the path of something else.
func dotSegment(escaped string) string {
	for segment := range strings.SplitSeq(escaped, "/") {
		if segment == "." || segment == ".." {
			return segment
		}
	}
	return ""
}

// public reports whether a request needs no token: probes, signing in and out, and the page.
func (s *Server) public(r *http.Request) bool {
	switch path := r.URL.Path; path {
	case wire.Prefix + wire.Health, wire.Prefix + wire.Ready,
		wire.Prefix + wire.Login, wire.Prefix + wire.Logout, wire.Prefix + wire.LoginOIDC, wire.Prefix + wire.LoginOIDCCallback:
		return true
	default:
		return s.ui && (r.Method == http.MethodGet || r.Method == http.MethodHead) && path != "/metrics" && !strings.HasPrefix(path, "/v1/")
	}
}

// finish settles, audits and counts an exchange, and releases it.
func (s *Server) finish(x *exchange, start time.Time) {
	if x.status == 0 && x.context().Err() != nil {
		x.status = statusClientGone
	}
	x.settle()
	s.audit.record(x)
	s.metrics.observeRequest(x.route, x.request.Method, x.status, time.Since(start))
	x.end()
}

// methods are the endpoints of a path, by HTTP method.
type methods map[string]endpoint

// endpoint is a handler and the scopes that may use it. Without a scope nobody may.
type endpoint struct {
	scope  access.Scope
	handle handler
}

// unless returns m, or, if something is missing that m needs, endpoints that answer with that error.
func (m methods) unless(missing error) methods {
	if missing == nil {
		return m
	}
	refusing := methods{}
	for method, to := range m {
		refusing[method] = endpoint{to.scope, func(*exchange) error { return missing }}
	}
	return refusing
}

// unimplementedUnless returns nil if the server has something, else CodeUnimplemented with the message.
func unimplementedUnless(there bool, message string) error {
	if there {
		return nil
	}
	return agl.Errorf(agl.CodeUnimplemented, "%s", message)
}

// route serves a path. As in the reference, a GET that the path does not support is answered with 404, and any other
// method with 405.
func (s *Server) route(path string, m methods) {
	allowed := slices.Sorted(maps.Keys(m))
	s.routes[path] = m
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		x, ok := w.(*exchange)
		if !ok {
			http.Error(w, "the mux must not be used by itself", http.StatusInternalServerError)
			return
		}
		x.route = path
		var err error
		switch to, found := m[r.Method]; {
		case found:
			if err = x.allow(to.scope); err == nil {
				x.audited = r.Method != http.MethodGet && to.scope&^(access.Train|access.Admin) == 0
				err = to.handle(x)
			}
		case r.Method == http.MethodGet:
			err = wire.ErrDetail(http.StatusNotFound, "Not Found")
		default:
			x.Header()["Allow"] = allowed
			err = wire.ErrDetail(http.StatusMethodNotAllowed, "Method Not Allowed")
		}
		if err != nil {
			x.fail(err)
		}
	})
}

// forward hands a request to a handler of another package.
func forward(h http.Handler) handler {
	return func(x *exchange) error {
		h.ServeHTTP(x, x.request)
		return nil
	}
}
