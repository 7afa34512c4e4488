package rest

import (
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl"
)

// trouble tells the log about failures that many requests run into alike, such
// as a full disk: the first of a code, then one in a while with the number of
// those that were left out.
type trouble struct {
	mu    sync.Mutex
	kinds map[agl.Code]*troubleKind
}

type troubleKind struct {
	told time.Time
	held int
}

// troubleEvery is how often a code is told.
const troubleEvery = 10 * time.Second

// tell logs a failure of a request, or counts it.
func (t *trouble) tell(log *slog.Logger, code agl.Code, path string, err error) {
	t.mu.Lock()
	if t.kinds == nil {
		t.kinds = map[agl.Code]*troubleKind{}
	}
	k := t.kinds[code]
	if k == nil {
		k = &troubleKind{}
		t.kinds[code] = k
	}
	if !k.told.IsZero() && time.Since(k.told) < troubleEvery {
		k.held++
		t.mu.Unlock()
		return
	}
	held := k.held
	k.told, k.held = time.Now(), 0
	t.mu.Unlock()
	log.Warn("the store refuses requests", "code", code, "path", path, "error", err, "not_logged", held)
}
