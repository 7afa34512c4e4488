package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// channel is what servers notify each other over. Notifications do not leave the
// database.
const channel = "agl"

// told is a notification: what a batch has changed that other servers wait for.
type told struct {
	Server   string   // who says it
	Resync   bool     // it does not fit: look at everything
	Queue    bool     // as in store.Notice
	Rollouts []string // as in store.Notice
}

// maxPayload is what fits into a notification: less than 8000 bytes.
const maxPayload = 7999

// payload is the JSON form, cut down to Resync when it is too long.
func (t *told) payload() []byte {
	o := rawjson.NewObject(make([]byte, 0, 64+len(t.Rollouts)*idBytes))
	o.String("server", t.Server)
	mark := len(o)
	if t.Queue {
		o.Bool("queue", true)
	}
	if len(t.Rollouts) > 0 {
		o.Key("rollouts")
		o = rawjson.AppendArray(o, t.Rollouts, rawjson.AppendString[string])
	}
	if len(o) >= maxPayload {
		o = o[:mark]
		o.Bool("resync", true)
	}
	return o.End()
}

// listener is the connection over which this process hears of the others, and the
// way from there to the engine, which never waits for it and never misses one:
// what it does not fetch in time is put together.
type listener struct {
	driver  *Driver
	config  *pgx.ConnConfig
	notices chan store.Notice

	mu      sync.Mutex
	pending store.Notice
	there   bool          // pending holds something
	wake    chan struct{} // capacity 1: there has become true
	soon    chan struct{} // capacity 1: the queue is to be looked at in a moment
}

const (
	// maxPending is how many rollouts are named to the engine at once; more are
	// everything.
	maxPending = 1024
	// soonAfter is when the engine looks at the queue again after other servers
	// held what it wanted.
	soonAfter  = 10 * time.Millisecond
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

func (l *listener) init(d *Driver, config *pgx.ConnConfig) {
	l.driver = d
	l.config = config.Copy()
	l.config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { l.heard(n.Payload) }
	l.notices = make(chan store.Notice)
	l.wake = make(chan struct{}, 1)
	l.soon = make(chan struct{}, 1)
}

// heard takes one notification.
func (l *listener) heard(payload string) {
	var t told
	err := rawjson.Unmarshal([]byte(payload), &t)
	switch {
	case err != nil:
		l.driver.log.Warn("a notification was not understood", "error", err)
		l.tell(store.Notice{Resync: true})
	case t.Server != l.driver.server:
		l.tell(store.Notice{Resync: t.Resync, Queue: t.Queue, Rollouts: t.Rollouts})
	}
}

// UnmarshalJSONFrom reads what payload writes.
func (t *told) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return json.UnmarshalDecode(dec, &struct {
		Server   *string   `json:"server"`
		Resync   *bool     `json:"resync"`
		Queue    *bool     `json:"queue"`
		Rollouts *[]string `json:"rollouts"`
	}{&t.Server, &t.Resync, &t.Queue, &t.Rollouts})
}

// tell adds a notice to what the engine has yet to get.
func (l *listener) tell(n store.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.pending
	p.Resync = p.Resync || n.Resync
	p.Queue = p.Queue || n.Queue
	p.Rollouts = append(p.Rollouts, n.Rollouts...)
	if len(p.Rollouts) > maxPending {
		p.Resync = true
	}
	if p.Resync {
		p.Rollouts = nil
	}
	l.there = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tellSoon makes the engine look at the queue in a moment.
func (l *listener) tellSoon() {
	select {
	case l.soon <- struct{}{}:
	default:
	}
}

func (l *listener) take() (n store.Notice, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, there = l.pending, l.there
	l.pending, l.there = store.Notice{}, false
	return n, there
}

// forward hands notices to the engine until ctx ends.
func (l *listener) forward(ctx context.Context) {
	defer close(l.notices)
	var timer <-chan time.Time
	for {
		select {
		case <-l.wake:
		case <-l.soon:
			if timer == nil {
				timer = time.After(soonAfter)
			}
		case <-timer:
			timer = nil
			l.tell(store.Notice{Queue: true})
		case <-ctx.Done():
			return
		}
		n, there := l.take()
		if !there {
			continue
		}
		select {
		case l.notices <- n:
		case <-ctx.Done():
			return
		}
	}
}

// listen keeps a connection that listens until ctx ends.
func (l *listener) listen(ctx context.Context) {
	backoff := minBackoff
	for {
		start := time.Now()
		err := l.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > maxBackoff {
			backoff = minBackoff
		}
		l.driver.log.WarnContext(ctx, "the connection for notifications is lost; until there is a new one, other servers' work is seen late",
			"error", err, "retry_in", backoff)
		// Not all servers of a database that comes back at the same moment.
		timer := time.NewTimer(backoff/2 + rand.N(backoff/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// listenOnce connects and listens until the connection is lost. The engine is
// told to look at everything when it begins, and at every interval.
func (l *listener) listenOnce(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, l.config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := l.driver.bound(context.WithoutCancel(ctx))
		defer cancel()
		// Nothing is lost with it.
		_ = conn.Close(closing)
	}()
	bounded, cancel := l.driver.bound(ctx)
	defer cancel()
	if _, err := conn.Exec(bounded, `LISTEN `+channel); err != nil {
		return err
	}
	for {
		l.tell(store.Notice{Resync: true})
		if err := l.hearFor(ctx, conn, l.driver.config.PollInterval); err != nil {
			return err
		}
		if err := l.alive(ctx, conn); err != nil {
			return err
		}
	}
}

// hearFor receives notifications for a while.
func (*listener) hearFor(ctx context.Context, conn *pgx.Conn, d time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		// OnNotification gets what comes.
		err := conn.PgConn().WaitForNotification(bounded)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case bounded.Err() != nil && !conn.IsClosed():
			return nil
		default:
			return err
		}
	}
}

// alive notices a connection whose other end is gone without a word.
func (l *listener) alive(ctx context.Context, conn *pgx.Conn) error {
	bounded, cancel := l.driver.bound(ctx)
	defer cancel()
	return conn.Ping(bounded)
}
