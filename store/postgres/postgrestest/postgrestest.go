// Package postgrestest starts real PostgreSQL servers for tests and benchmarks:
// each on a free port with its data in a temporary directory, and as an unprivileged
// user if this process runs as root.
//
//	var server = postgrestest.Shared{Config: postgrestest.Stores()}
//
//	func TestMain(m *testing.M) { os.Exit(server.Run(m)) }
//
//	func TestX(t *testing.T) { url := server.Database(t); … }
//
// Only [Stores] and [Execute] know the schema of a store. The package must not know the
// engine or the tests that use it.
package postgrestest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/internal/httpserver"
)

// URLVariable names the environment variable with the URL of a running server
// to use instead of starting one. Its user must be allowed to create databases.
const URLVariable = "AGL_POSTGRES_URL"

// errNotOurs is returned by Stop, Kill and Resume for a server that this package did not
// start.
var errNotOurs = errors.New("the server of " + URLVariable + " is not ours to stop")

// Config says which server to start. Its zero value is usable.
type Config struct {
	// Durable makes commits wait for the disk, as servers in production do.
	Durable bool
	// Template, if not nil, prepares the database that NewDatabase copies.
	Template func(ctx context.Context, url string) error
	// Recycle, if not nil, resets a used database to the template, so that Shared need
	// not create another one.
	Recycle func(ctx context.Context, url string) error
	// Settings go into the server's configuration, such as "max_connections": "20".
	Settings map[string]string
	// URL names a running server to use instead of a new one.
	URL string
	// Logger receives the starts and ends of the server; nil discards them.
	Logger *slog.Logger
}

// Server is a PostgreSQL server. Create it with [Start].
type Server struct {
	config Config
	dir    string   // all of the server's files; "" when it is not ours
	base   *url.URL // of its database postgres

	mu        sync.Mutex
	process   *process // nil while it does not run
	databases int
	prepared  bool // there is a template
}

// The names of databases and users carry no secrets; the password does not leave
// the machine and dies with the server.
const (
	superuser = "agl"
	template  = "agl_template"
)

// Start starts a server, or uses the running one at Config.URL or $AGL_POSTGRES_URL.
// Close it after use.
func Start(ctx context.Context, config Config) (*Server, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{config: config}
	if given := cmp.Or(config.URL, os.Getenv(URLVariable)); given != "" {
		base, err := url.Parse(given)
		if err != nil {
			return nil, fmt.Errorf("%s is not a URL", URLVariable) // the error itself may hold the password
		}
		s.base = base
		return s, nil
	}
	bin, err := binaries(usualPlaces())
	if err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "agl-postgres-"); err != nil {
		return nil, err
	}
	if err := s.create(ctx, bin); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// create makes the data directory and starts the server.
func (s *Server) create(ctx context.Context, bin string) error {
	owner, err := unprivileged()
	if err != nil {
		return err
	}
	password := rand.Text()
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return err
	}
	if err := owner.own(s.dir, secret); err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", superuser,
		"--pwfile", secret, "--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	initdb.Dir = s.dir
	owner.become(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	// Another process may take the port before the server does.
	for try := 0; ; try++ {
		port, err := httpserver.FreePort(ctx)
		if err != nil {
			return err
		}
		s.base = &url.URL{
			Scheme: "postgres", User: url.UserPassword(superuser, password), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path: "/postgres", RawQuery: "sslmode=disable",
		}
		s.process = &process{
			command: slices.Concat([]string{filepath.Join(bin, "postgres"), "-D", data}, settings(&s.config, s.dir, port)),
			dir:     s.dir, owner: owner, log: s.config.Logger,
		}
		err = s.process.start(ctx, s.URL("postgres"))
		if err == nil || try == 2 || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

// settings are the server's command-line options.
func settings(c *Config, dir string, port int) []string {
	all := map[string]string{
		"port":                    strconv.Itoa(port),
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": dir,
		"max_connections":         "200",
		"shared_buffers":          "64MB",
		"logging_collector":       "off",
	}
	if !c.Durable {
		all["fsync"] = "off"
		all["synchronous_commit"] = "off"
		all["full_page_writes"] = "off"
		all["autovacuum"] = "off"
	}
	maps.Copy(all, c.Settings)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, "-c", name+"="+all[name])
	}
	return out
}

// URL returns the URL of one of the server's databases, with its password. It
// stays the same over restarts.
func (s *Server) URL(database string) string {
	u := *s.base
	u.Path = "/" + database
	return u.String()
}

// PID returns the process id of the server, 0 if it is not running or not ours.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.pid()
}

// Stop shuts the server down ("fast": running transactions are rolled back) and waits
// for its end.
func (s *Server) Stop(ctx context.Context) error {
	return s.withProcess(func(p *process) error { return p.stop(ctx, os.Interrupt) })
}

// Kill ends the server with SIGKILL, like a crash, and waits for its end.
func (s *Server) Kill(ctx context.Context) error {
	return s.withProcess(func(p *process) error { return p.stop(ctx, os.Kill) })
}

// Resume starts a stopped or killed server on the same port and data, and waits until
// it answers.
func (s *Server) Resume(ctx context.Context) error {
	return s.withProcess(func(p *process) error { return p.start(ctx, s.URL("postgres")) })
}

// withProcess calls do with the process of a server that is ours.
func (s *Server) withProcess(do func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return errNotOurs
	}
	return do(s.process)
}

// NewDatabase creates a database with a unique name and returns its URL. It is a copy of
// the template if Config has one.
func (s *Server) NewDatabase(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	from := "template0"
	if s.config.Template != nil {
		from = template + "_" + strconv.Itoa(os.Getpid())
		if err := s.prepare(ctx, conn, from); err != nil {
			return "", err
		}
	}
	s.databases++
	name := fmt.Sprintf("agl_%d_%d", os.Getpid(), s.databases)
	create := "CREATE DATABASE " + name + " TEMPLATE " + from
	major, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 15 {
		create += " STRATEGY file_copy" // the only one of older servers; it takes a third of the time of the default
	}
	_, err = conn.Exec(ctx, create)
	return s.URL(name), err
}

// prepare creates the template once.
func (s *Server) prepare(ctx context.Context, conn *pgx.Conn, name string) error {
	if s.prepared {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return err
	}
	if err := s.config.Template(ctx, s.URL(name)); err != nil {
		return err
	}
	s.prepared = true
	return nil
}

// DropDatabase drops the database of a URL and closes its connections.
func (s *Server) DropDatabase(ctx context.Context, databaseURL string) error {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	name := pgx.Identifier{strings.TrimPrefix(u.Path, "/")}
	_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+name.Sanitize()+" WITH (FORCE)")
	return err
}

// Close ends the server and removes its files.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return s.dropTemplate(ctx)
	}
	// "Immediate": the data is no longer needed.
	return errors.Join(s.process.stop(ctx, immediate), os.RemoveAll(s.dir))
}

// dropTemplate removes the template from a server that is not ours.
func (s *Server) dropTemplate(ctx context.Context) error {
	if !s.prepared {
		return nil
	}
	return s.DropDatabase(ctx, s.URL(template+"_"+strconv.Itoa(os.Getpid())))
}

// Shared is one server for all tests of a package. The first test that needs it starts
// it:
//
//	var server postgrestest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(server.Run(m)) }
type Shared struct {
	Config Config

	once   sync.Once
	server *Server
	err    error

	mu   sync.Mutex
	free []string // URLs of databases to be used again
}

// startWithin bounds the start and the end of a shared server.
const startWithin = time.Minute

// Server returns the server. The test fails if it cannot be started.
func (s *Shared) Server(tb testing.TB) *Server {
	tb.Helper()
	s.once.Do(func() {
		// The server outlives the first test.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startWithin)
		defer cancel()
		s.server, s.err = Start(ctx, s.Config)
	})
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

// Database returns the URL of an empty database, which belongs to the test until it
// ends.
func (s *Shared) Database(tb testing.TB) string {
	tb.Helper()
	server := s.Server(tb)
	databaseURL := s.takeFree()
	if databaseURL == "" {
		var err error
		if databaseURL, err = server.NewDatabase(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() {
		if err := s.giveBack(context.WithoutCancel(tb.Context()), databaseURL); err != nil {
			tb.Error(err)
		}
	})
	return databaseURL
}

func (s *Shared) takeFree() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return ""
	}
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last
}

func (s *Shared) giveBack(ctx context.Context, databaseURL string) error {
	if s.Config.Recycle == nil {
		return s.server.DropDatabase(ctx, databaseURL)
	}
	if err := s.Config.Recycle(ctx, databaseURL); err != nil {
		return errors.Join(err, s.server.DropDatabase(ctx, databaseURL))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, databaseURL)
	return nil
}

// Run runs the tests and closes the server. It returns the exit status.
func (s *Shared) Run(m *testing.M) int {
	code := m.Run()
	if err := s.Close(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "postgrestest:", err)
		return cmp.Or(code, 1)
	}
	return code
}

// Close ends the server if it was started.
func (s *Shared) Close() error {
	s.once.Do(func() { s.err = errors.New("the shared server is closed") })
	if s.server == nil {
		return nil
	}
	// TestMain has no context.
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return s.server.Close(ctx)
}
