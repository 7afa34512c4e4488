package sqlite

import (
	"log/slog"
	"time"

	"github.com/agl-go/agl"
)

// Sync is what an acknowledged write survives.
type Sync int

const (
	// SyncFull waits for the disk with every commit: an acknowledged write
	// survives the loss of power.
	SyncFull Sync = iota
	// SyncNormal leaves the last commits to the operating system: an acknowledged
	// write survives the death of the process, and the loss of power at most costs
	// the last of them, never the file.
	SyncNormal
)

// String is the name of the setting: full or normal.
func (s Sync) String() string {
	if s == SyncNormal {
		return "normal"
	}
	return "full"
}

// ParseSync reads the name of a setting; ErrInvalid.
func ParseSync(name string) (Sync, error) {
	for _, s := range []Sync{SyncFull, SyncNormal} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, agl.Errorf(agl.CodeInvalid, "sync: got %q, must be full or normal", name)
}

// Config says which file to serve, and how.
type Config struct {
	// Path is the file; required. It is created when there is none. Beside it
	// there will be files of the same name and -wal, -shm and .lock.
	Path string
	// Sync is what an acknowledged write survives; the zero value is SyncFull.
	Sync Sync
	// CacheBytes bounds the memory for rollouts, workers and resources that
	// batches need again; 0 is 32 MiB.
	CacheBytes int64
	// IdempotencyTTL is how long idempotency keys are remembered; 0 is 24 hours.
	IdempotencyTTL time.Duration
	// EventTTL and MaxEvents bound the event log; 0 is an hour and 100,000.
	EventTTL  time.Duration
	MaxEvents int
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
}

const (
	defaultCacheBytes     = 32 << 20
	defaultIdempotencyTTL = 24 * time.Hour
	defaultEventTTL       = time.Hour
	defaultMaxEvents      = 100_000
)

func (c Config) withDefaults() Config {
	if c.CacheBytes == 0 {
		c.CacheBytes = defaultCacheBytes
	}
	if c.IdempotencyTTL == 0 {
		c.IdempotencyTTL = defaultIdempotencyTTL
	}
	if c.EventTTL == 0 {
		c.EventTTL = defaultEventTTL
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = defaultMaxEvents
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Path == "":
		return agl.Errorf(agl.CodeInvalid, "sqlite.Config.Path is required")
	case c.Sync != SyncFull && c.Sync != SyncNormal:
		return agl.Errorf(agl.CodeInvalid, "sqlite.Config.Sync: got %d, must be SyncFull or SyncNormal", c.Sync)
	case c.CacheBytes < 0:
		return agl.Errorf(agl.CodeInvalid, "sqlite.Config.CacheBytes: got %d, must not be negative", c.CacheBytes)
	case c.IdempotencyTTL < 0 || c.EventTTL < 0 || c.MaxEvents < 0:
		return agl.Errorf(agl.CodeInvalid, "sqlite.Config: IdempotencyTTL %v, EventTTL %v and MaxEvents %d must not be negative",
			c.IdempotencyTTL, c.EventTTL, c.MaxEvents)
	}
	return nil
}
