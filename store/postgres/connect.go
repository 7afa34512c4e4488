package postgres

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// serverName is how the connections of servers call themselves.
const serverName = "agl"

// schema is where everything is kept unless the URL has a search_path.
const schema = "agl"

// parse makes the configuration of connections. Its error does not show the URL,
// which may hold a password.
func parse(c Config) (*pgxpool.Config, error) {
	parsed, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "postgres.Config.URL: got %s, which is not understood%s", location(c.URL), reason(err))
	}
	parsed.ConnConfig.ConnectTimeout = c.ConnectTimeout
	// Results are read in binary, which statements without preparation do not give.
	parsed.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if parsed.ConnConfig.ValidateConnect == nil && len(parsed.ConnConfig.Fallbacks) > 0 {
		// Of several hosts the one that can be written to.
		parsed.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	params := parsed.ConnConfig.RuntimeParams
	params["application_name"] = serverName // by which operators' commands know a server
	for name, value := range map[string]string{
		"search_path":                         schema,
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

// byKey are the settings of connections whose statements find all rows by their
// keys, in whatever order of joins: planning them anew each time costs as much as
// running them, and a plan that was made while a table was empty must not scan it
// when it is not any more.
func byKey() map[string]string {
	return map[string]string{
		"plan_cache_mode":  "force_generic_plan",
		"enable_seqscan":   "off",
		"enable_hashjoin":  "off",
		"enable_mergejoin": "off",
		"jit":              "off",
	}
}

// writerConfig is for the connection that batches use.
func writerConfig(parsed *pgxpool.Config) *pgconn.Config {
	config := parsed.ConnConfig.Config.Copy()
	maps.Copy(config.RuntimeParams, byKey())
	return config
}

// pool makes a pool of connections with these settings.
func pool(ctx context.Context, parsed *pgxpool.Config, conns int, settings map[string]string) (*pgxpool.Pool, error) {
	config := parsed.Copy()
	config.MaxConns = int32(conns)
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	return pgxpool.NewWithConfig(ctx, config)
}

// location is a URL without its secrets.
func location(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		scheme, _, found := strings.Cut(raw, "://")
		if !found {
			return "something that is no URL"
		}
		return strconv.Quote(scheme + "://…")
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if name := u.User.Username(); name != "" {
		shown.User = url.User(name)
	}
	return shown.String()
}

// reason is why a URL was not understood, where that shows nothing of it.
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

// connConfig is the configuration of single connections.
func connConfig(parsed *pgxpool.Config) *pgx.ConnConfig { return parsed.ConnConfig.Copy() }
