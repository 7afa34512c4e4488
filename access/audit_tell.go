package access

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/agl-go/agl"
)

// Teller tells a store what callers have done at another server. key is the key of the caller; ""
// is that of whoever may do everything there.
type Teller interface {
	RecordAct(ctx context.Context, key string, act Act) error
}

// Tell tells an act that has succeeded, also when its caller has gone. If that fails, the log has
// it. A nil teller tells nobody.
func Tell(teller Teller, log *slog.Logger, r *http.Request, key string, status int) {
	if teller == nil {
		return
	}
	act := Act{Time: agl.TimestampOf(time.Now()), From: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Status: status}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), RecordTimeout)
	defer cancel()
	if err := teller.RecordAct(ctx, key, act); err != nil {
		log.Error("an act was not recorded", "from", act.From, "method", act.Method, "path", act.Path, "error", err)
	}
}
