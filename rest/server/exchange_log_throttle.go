package server

import (
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// throttle limits log lines about failures that affect many requests, such as a full disk. For each code it logs the
// first failure, and then one per interval with the number of omitted failures.
type throttle struct {
	mu    sync.Mutex
	codes map[agl.Code]*throttled
}

type throttled struct {
	last    time.Time // when it was logged
	omitted int       // since then
}

// throttleInterval is the minimum time between two log lines about one code.
const throttleInterval = 10 * time.Second

func (t *throttle) warn(log *slog.Logger, code agl.Code, path string, err error) {
	if omitted, due := t.due(code); due {
		log.Warn("the store refuses requests", "code", code, "path", path, "error", err, "not_logged", omitted)
	}
}

// due reports whether a message about a code is due, and how many were omitted since the last one.
func (t *throttle) due(code agl.Code) (omitted int, due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.codes == nil {
		t.codes = map[agl.Code]*throttled{}
	}
	c := t.codes[code]
	if c == nil {
		c = &throttled{}
		t.codes[code] = c
	}
	now := time.Now()
	if !c.last.IsZero() && now.Sub(c.last) < throttleInterval {
		c.omitted++
		return 0, false
	}
	omitted = c.omitted
	c.last, c.omitted = now, 0
	return omitted, true
}
