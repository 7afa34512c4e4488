package postgres

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Config says which database to use, and how. Everything but URL has a default.
type Config struct {
	// URL names the database: postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the
	// parameters of libpq, such as sslmode; required. Of several hosts, the one that
	// accepts writes is used. All tables are in the schema "agl" unless the URL has a
	// search_path. A connection pooler in between must not share connections between
	// transactions.
	URL string
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
	// MaxConns bounds the connections of this process: one writes, one listens, half
	// of the others read by key, the rest search. 0 is 8; the minimum is 4. An export
	// opens one more.
	MaxConns int
	// ConnectTimeout bounds connecting; 0 is 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds each statement; 0 is 15 s. Every call ends at most 2 s
	// later, even if the network is silent.
	StatementTimeout time.Duration
	// LockTimeout bounds how long a batch waits for rows that another server has
	// locked, before it runs again; 0 is 2 s.
	LockTimeout time.Duration
	// PollInterval is how often the engine reads the whole queue and all deadlines, in case
	// a notification was lost; 0 is 15 s.
	PollInterval time.Duration
	driver.Lifetimes
}

const (
	defaultMaxConns         = 8
	minConns                = 4
	defaultConnectTimeout   = 5 * time.Second
	defaultStatementTimeout = 15 * time.Second
	defaultLockTimeout      = 2 * time.Second
	defaultPollInterval     = 15 * time.Second
	defaultIdempotencyTTL   = 24 * time.Hour

	// answerSlack is how long a call may take beyond the statement timeout.
	answerSlack = 2 * time.Second
)

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxConns = cmp.Or(c.MaxConns, defaultMaxConns)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	c.StatementTimeout = cmp.Or(c.StatementTimeout, defaultStatementTimeout)
	c.LockTimeout = cmp.Or(c.LockTimeout, defaultLockTimeout)
	c.PollInterval = cmp.Or(c.PollInterval, defaultPollInterval)
	c.Lifetimes = c.WithDefaults(defaultIdempotencyTTL)
	return c
}

func (c Config) validate() error {
	switch {
	case c.URL == "":
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.URL is required")
	case c.MaxConns < minConns:
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.MaxConns: got %d, must be at least %d", c.MaxConns, minConns)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"StatementTimeout", c.StatementTimeout},
		{"LockTimeout", c.LockTimeout},
		{"PollInterval", c.PollInterval},
	} {
		if d.value < time.Millisecond {
			return agl.Errorf(agl.CodeInvalid, "postgres.Config.%s: got %v, must be at least 1 ms", d.name, d.value)
		}
	}
	return c.Validate("postgres.Config")
}

// bound limits a call, which must end even if the network is silent.
func (c Config) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.StatementTimeout+answerSlack)
}
