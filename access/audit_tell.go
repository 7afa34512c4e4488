package access

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/agl-go/agl"
)

// Teller reports to a store what callers did at another server. key is the key of the caller, "" for the other
// server's own key.
type Teller interface {
	RecordAct(ctx context.Context, key string, act Act) error
}

// Tell reports a successful call to the store, even if its caller has gone. If that fails, it is logged. A nil teller
// reports nothing.
func Tell(teller Teller, log *slog.Logger, r *http.Request, key string, status int) {
	if teller == nil {
		return
	}
	act := Act{Time: agl.TimestampOf(time.Now()), From: From(r), Method: r.Method, Path: r.URL.Path, Status: status}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
	defer cancel()
	if err := teller.RecordAct(ctx, key, act); err != nil {
		log.Error("an act was not recorded", "from", act.From, "method", act.Method, "path", act.Path, "error", err)
	}
}
