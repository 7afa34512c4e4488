package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// readyTimeout bounds Store.Ready.
	readyTimeout = 2 * time.Second
	// readyFor is how long the store's answer is reused. The path needs no token, so
	// otherwise anybody could overload the database.
	readyFor = time.Second
)

// probes says whether the server is alive and ready, and what the store holds.
type probes struct {
	store agl.Store

	mu    sync.Mutex
	asked time.Time // when the store gave err; zero before the first time
	err   error
}

func (p *probes) health(x *exchange) error {
	return x.answerText(http.StatusOK, `{"status":"ok"}`)
}

func (p *probes) statistics(x *exchange) error {
	stats, err := p.store.Statistics(x.context())
	return x.answer(http.StatusOK, &stats, err)
}

// ready tells a load balancer whether to send requests here. It needs no token and therefore answers only with a
// code; the log has the details.
func (p *probes) ready(x *exchange) error {
	reason := ""
	if x.drain.begun() {
		reason = "draining"
	} else if err := p.check(x); err != nil {
		reason = string(agl.ErrorCode(err))
	}
	if reason == "" {
		return x.answerText(http.StatusOK, `{"status":"ready"}`)
	}
	backoff.SetRetryAfter(x.Header(), retryAfter)
	doc := rawjson.NewObject(x.out)
	doc.String("status", "unavailable")
	doc.String("reason", reason)
	return x.send(http.StatusServiceUnavailable, doc.End())
}

// check asks the store, unless it has just answered another probe. It logs changes.
func (p *probes) check(x *exchange) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.IsZero() && time.Since(p.asked) < readyFor {
		return p.err
	}
	// Other probes reuse the answer, even if this client has disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.context()), readyTimeout)
	defer cancel()
	err := p.store.Ready(ctx)
	if agl.IsContextError(err) {
		err = agl.Errorf(agl.CodeUnavailable, "the database did not answer within %s", readyTimeout)
	}
	switch {
	case err != nil && p.err == nil:
		x.log.Warn("not ready", "error", err)
	case err == nil && p.err != nil:
		x.log.Info("ready again")
	}
	p.asked, p.err = time.Now(), err
	return err
}
