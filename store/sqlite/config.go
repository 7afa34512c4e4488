package sqlite

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Sync says which failures an acknowledged write survives.
type Sync int

const (
	// SyncFull flushes every commit to the disk: an acknowledged write survives a
	// power failure.
	SyncFull Sync = iota
	// SyncNormal passes every commit to the operating system: an acknowledged write
	// survives the end of the process. A power failure may lose the last commits, but
	// never damages the file.
	SyncNormal
)

// String returns the name of the setting: full or normal.
func (s Sync) String() string {
	if s == SyncNormal {
		return "normal"
	}
	return "full"
}

// ParseSync reads full or normal; other names are ErrInvalid.
func ParseSync(name string) (Sync, error) {
	for _, s := range []Sync{SyncFull, SyncNormal} {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, agl.Errorf(agl.CodeInvalid, "sync: got %q, must be full or normal", name)
}

// Config says which file to serve, and how. Everything but Path has a default.
type Config struct {
	// Path names the file; required. Open creates it if it does not exist, and keeps
	// -wal, -shm and .lock files beside it.
	Path string
	// Sync says which failures an acknowledged write survives; the zero value is
	// SyncFull.
	Sync Sync
	// CacheBytes bounds the cache of rollouts; 0 is 32 MiB. The caches of workers, of
	// resources and of recently stored spans may each take another eighth of it.
	CacheBytes int64
	driver.Lifetimes
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
}

const (
	defaultCacheBytes     = 32 << 20
	defaultIdempotencyTTL = 24 * time.Hour
)

func (c Config) withDefaults() Config {
	c.CacheBytes = cmp.Or(c.CacheBytes, defaultCacheBytes)
	c.Lifetimes = c.WithDefaults(defaultIdempotencyTTL)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
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
	}
	return c.Validate("sqlite.Config")
}
