package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
)

// serverName is the application_name of the connections of servers, until they name their schema.
const serverName = "agl"

// nameInSchema selects the application_name of the connections of servers that use the current schema. PostgreSQL keeps 63 bytes
// of ASCII, so a name that is longer or has other characters ends with its hash.
const nameInSchema = `CASE WHEN COALESCE(current_schema(), '` + schema + `') = '` + schema + `' THEN '` + serverName + `'
	WHEN current_schema() ~ '^[a-zA-Z0-9_]{1,56}$' THEN '` + serverName + ` in ' || current_schema()
	ELSE '` + serverName + ` in ' || left(regexp_replace(current_schema(), '[^a-zA-Z0-9_]', '?', 'g'), 44) || ' ' || hashtext(current_schema()) END`

// schema is the schema of all tables unless the URL has a search_path.
const schema = "agl"

// CheckURL says what is wrong with the URL of a database, without its secrets and without connecting. As libpq does, it
// completes the URL from PG… variables and the files that these and the URL name.
func CheckURL(raw string) error {
	if _, err := pgxpool.ParseConfig(raw); err != nil {
		return errURL(raw, err)
	}
	return nil
}

// errURL says what err, of pgx, finds wrong with a URL.
func errURL(raw string, err error) error {
	u, parseErr := url.Parse(raw)
	if parseErr != nil {
		return agl.Errorf(agl.CodeInvalid, "got %s, which is not understood%s", location(raw), reason(err))
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		_, port, found := strings.Cut(host[strings.LastIndexByte(host, ']')+1:], ":")
		if n, err := strconv.ParseUint(port, 10, 16); found && port != "" && (err != nil || n == 0) {
			return agl.Errorf(agl.CodeInvalid, "got %s, its port %s must be 1 to 65535", location(raw), port)
		}
	}
	if mode := u.Query().Get("sslmode"); mode != "" && !slices.Contains(sslModes, mode) {
		return agl.Errorf(agl.CodeInvalid, "got %s with sslmode=%s, sslmode must be one of %s", location(raw), mode, strings.Join(sslModes, ", "))
	}
	if err := checkVariables(u); err != nil {
		return err
	}
	return agl.Errorf(agl.CodeInvalid, "got %s, which is not understood%s", location(raw), reason(err))
}

// checkVariables returns an error if a PG… variable that completes a URL has a wrong value.
func checkVariables(u *url.URL) error {
	number := func(least, most uint64) func(text string) bool {
		return func(text string) bool {
			n, err := strconv.ParseUint(text, 10, 64)
			return err == nil && n >= least && n <= most
		}
	}
	for _, v := range [...]struct {
		name, parameter string
		given           bool // in the URL, outside its query
		ok              func(text string) bool
		allowed         string
	}{
		{"PGSSLMODE", "sslmode", false, func(text string) bool { return slices.Contains(sslModes, text) }, "one of " + strings.Join(sslModes, ", ")},
		{"PGPORT", "port", u.Port() != "", number(1, math.MaxUint16), "1 to 65535"},
		{"PGCONNECT_TIMEOUT", "connect_timeout", false, number(0, math.MaxInt32), "a number of seconds"},
		{"PGTARGETSESSIONATTRS", "target_session_attrs", false, func(text string) bool { return slices.Contains(sessionAttrs, text) }, "one of " + strings.Join(sessionAttrs, ", ")},
	} {
		if text := os.Getenv(v.name); text != "" && !v.given && !u.Query().Has(v.parameter) && !v.ok(text) {
			return agl.Errorf(agl.CodeInvalid, "the environment variable %s is %q, must be %s", v.name, text, v.allowed)
		}
	}
	return nil
}

var sessionAttrs = []string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"}

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// parse makes the configuration of connections. Its error does not show the URL, which
// may hold a password.
func parse(c Config) (*pgxpool.Config, error) {
	parsed, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "postgres.Config.URL: %w", errURL(c.URL, err))
	}
	parsed.ConnConfig.ConnectTimeout = c.ConnectTimeout
	// row reads binary results, which only prepared statements return.
	parsed.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if parsed.ConnConfig.ValidateConnect == nil && len(parsed.ConnConfig.Fallbacks) > 0 {
		// Use the one of several hosts that accepts writes.
		parsed.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	params := parsed.ConnConfig.RuntimeParams
	params["application_name"] = serverName // how agl db recognises a server
	// A batch prepares statements in the pipeline of its BEGIN, before it: PostgreSQL then refuses a BEGIN with another isolation
	// than the default.
	params["default_transaction_isolation"] = "read committed"
	for name, value := range map[string]string{
		"search_path":                         schema,
		"jit":                                 "off", // to compile a statement takes longer than to run ours
		"client_encoding":                     "UTF8",
		"statement_timeout":                   millis(c.StatementTimeout),
		"lock_timeout":                        millis(c.LockTimeout),
		"idle_in_transaction_session_timeout": millis(c.StatementTimeout + answerSlack),
	} {
		if _, given := params[name]; !given {
			params[name] = value
		}
	}
	return parsed, nil
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// byKey are the settings of connections whose statements find all rows by key.
// Planning these statements each time costs as much as running them, and a generic
// plan that was made for an empty table must not scan the table later.
func byKey() map[string]string {
	return map[string]string{
		"plan_cache_mode":  "force_generic_plan",
		"enable_seqscan":   "off",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
	}
}

// writerConfig configures the connection of the batches.
func writerConfig(parsed *pgxpool.Config) *pgx.ConnConfig {
	config := parsed.ConnConfig.Copy()
	maps.Copy(config.RuntimeParams, byKey())
	return config
}

// pool makes a pool of connections with these settings.
func pool(ctx context.Context, parsed *pgxpool.Config, conns int, settings map[string]string) (*pgxpool.Pool, error) {
	config := parsed.Copy()
	config.MaxConns = int32(conns)
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	config.ConnConfig.Config = *inSession(&config.ConnConfig.Config)
	return pgxpool.NewWithConfig(ctx, config)
}

// connect opens a connection.
func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config = config.Copy()
	config.Config = *inSession(&config.Config)
	return pgx.ConnectConfig(ctx, config)
}

// connectChecked opens a connection, unless a pooler gives it to several sessions.
func connectChecked(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	doing := "connect to " + location(config.ConnString())
	conn, err := connect(ctx, config.ConnConfig)
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	if err = checkPooler(ctx, config.ConnConfig, conn); err == nil {
		return conn, nil
	}
	_ = conn.Close(context.WithoutCancel(ctx)) // the error of the check says more
	if errors.Is(err, errPooler) {
		return nil, agl.Errorf(agl.CodeInvalid, "postgres: %s: %w", doing, err)
	}
	return nil, failed(ctx, doing, err)
}

// atStart are the settings that poolers know at the start of a connection, and those that exist only there.
var atStart = []string{"application_name", "client_encoding", "options", "replication"}

// inSession returns the configuration of connections that change their settings when they have begun: PgBouncer accepts few at
// the start.
func inSession(config *pgconn.Config) *pgconn.Config {
	config = config.Copy()
	var calls []string
	var params [][]byte
	for _, name := range slices.Sorted(maps.Keys(config.RuntimeParams)) {
		if slices.Contains(atStart, name) {
			continue
		}
		params = append(params, []byte(name), []byte(config.RuntimeParams[name]))
		calls = append(calls, fmt.Sprintf("set_config($%d, $%d, false)", len(params)-1, len(params)))
		delete(config.RuntimeParams, name)
	}
	if len(params) == 0 {
		return config
	}
	if config.RuntimeParams["application_name"] == serverName { // last, when the search_path is set
		calls = append(calls, "set_config('application_name', "+nameInSchema+", false)")
	}
	statement := "SELECT " + strings.Join(calls, ", ")
	next, timeout := config.AfterConnect, config.ConnectTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := conn.ExecParams(bounded, statement, params, nil, nil, nil).Read().Err; err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return errNoSession
			}
			return err
		}
		if next == nil {
			return nil
		}
		return next(ctx, conn)
	}
	return config
}

// checkPooler reports errPooler if a pooler gives the transactions of one connection to several sessions: notices of commits
// would be lost, and prepared statements unknown.
func checkPooler(ctx context.Context, config *pgx.ConnConfig, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
	defer cancel()
	own, err := sessionOf(ctx, conn)
	if err != nil || own == conn.PgConn().PID() { // poolers make up the number that a connection is told
		return err
	}
	next, err := sessionOf(ctx, conn) // the pooler may take turns
	if err != nil {
		return err
	}
	if next != own {
		return errPooler
	}
	other, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer other.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, other, func(tx pgx.Tx) error {
		taken, err := sessionOf(ctx, tx.Conn())
		if err == nil && taken == own {
			return errPooler
		}
		return err
	})
}

var errPooler = errors.New("a connection pooler assigns transactions: it must assign whole sessions (pool_mode = session in PgBouncer), or the URL must be that of the database itself")

// errNoSession is the error of a connection that was accepted and is not served: PgBouncer lets clients wait.
var errNoSession = errors.New("it took the connection and does not answer; a connection pooler may have no session left (default_pool_size in PgBouncer)")

// sessionOf returns the number of the server's process behind a connection.
func sessionOf(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// location returns a URL without its secrets.
func location(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		scheme, _, found := strings.Cut(raw, "://")
		if !found {
			return "something that is not a URL"
		}
		return strconv.Quote(scheme + "://…")
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		shown.User = url.User(name)
	}
	return shown.String()
}

// reason returns why a URL is invalid, or nothing if the error repeats a part of the URL.
func reason(err error) string {
	cause := errors.Unwrap(err)
	if cause == nil {
		return ""
	}
	if _, repeats := errors.AsType[*url.Error](cause); repeats {
		return ""
	}
	return ": " + cause.Error()
}
