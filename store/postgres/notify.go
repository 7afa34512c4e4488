package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// channel is where servers notify each other. Notifications stay within the database.
const channel = "agl"

// notification describes the part of a commit that other servers wait for.
type notification struct {
	Server   string   // the sender
	Resync   bool     // the changes do not fit: the receiver must read everything
	Queue    bool     // as in driver.Notice
	Rollouts []string // as in driver.Notice
	Schema   int      // the version to which the sender is about to migrate the schema
}

// maxPayload bounds a notification: PostgreSQL accepts less than 8000 bytes.
const maxPayload = 7999

// payload encodes the notification. One that is too long becomes a Resync.
func (t *notification) payload() []byte {
	o := rawjson.NewObject(make([]byte, 0, 64+len(t.Rollouts)*16))
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

// listener receives the notifications of other servers and passes them to the engine.
// It never waits for the engine: notices that the engine has not fetched are merged.
type listener struct {
	config  Config
	conn    *pgx.ConnConfig // of the connection that listens
	server  string          // this process, in notifications
	schema  int             // the version of the schema that this program uses
	notices chan driver.Notice

	mu      sync.Mutex
	pending driver.Notice
	there   bool          // there is a pending notice
	wake    chan struct{} // capacity 1; signals that there is one
	soon    chan struct{} // capacity 1; signals that the engine should read the queue again soon
	newer   chan struct{} // capacity 1; signals that a newer program is about to migrate the schema
}

const (
	// maxPending bounds the rollouts of a merged notice; more become a Resync.
	maxPending = 1024
	// soonAfter is the delay before the engine reads the queue again because other servers
	// held rollouts.
	soonAfter  = 10 * time.Millisecond
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

func (l *listener) init(config Config, conn *pgx.ConnConfig, server string, schema int) {
	l.config, l.server, l.schema = config, server, schema
	l.conn = conn.Copy()
	l.conn.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { l.heard(n.Payload) }
	l.notices = make(chan driver.Notice)
	l.wake = make(chan struct{}, 1)
	l.soon = make(chan struct{}, 1)
	l.newer = make(chan struct{}, 1)
}

// heard handles one notification.
func (l *listener) heard(payload string) {
	var t notification
	err := rawjson.Unmarshal([]byte(payload), &t)
	switch {
	case err != nil:
		l.config.Logger.Warn("a notification was not understood", "error", err)
		l.tell(driver.Notice{Resync: true})
	case t.Schema > 0:
		if t.Schema <= l.schema { // that of servers which start together with this one
			return
		}
		background.Wake(l.newer)
	case t.Server != l.server:
		l.tell(driver.Notice{Resync: t.Resync, Queue: t.Queue, Rollouts: t.Rollouts})
	}
}

// UnmarshalJSONFrom reads what payload writes.
func (t *notification) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return json.UnmarshalDecode(dec, &struct {
		Server   *string   `json:"server"`
		Resync   *bool     `json:"resync"`
		Queue    *bool     `json:"queue"`
		Rollouts *[]string `json:"rollouts"`
		Schema   *int      `json:"schema"`
	}{&t.Server, &t.Resync, &t.Queue, &t.Rollouts, &t.Schema})
}

// tell adds a notice to those that the engine has not fetched.
func (l *listener) tell(n driver.Notice) {
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
	background.Wake(l.wake)
}

// tellSoon makes the engine read the queue again soon.
func (l *listener) tellSoon() {
	background.Wake(l.soon)
}

func (l *listener) take() (n driver.Notice, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, there = l.pending, l.there
	l.pending, l.there = driver.Notice{}, false
	return n, there
}

// forward passes notices to the engine until ctx ends.
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
			l.tell(driver.Notice{Queue: true})
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

// listen keeps a listening connection until ctx ends.
func (l *listener) listen(ctx context.Context) {
	delays := backoff.Exponential{First: minBackoff, Max: maxBackoff, Jitter: 0.5} // not all servers reconnect at the same moment
	for failures := 0; ; failures++ {
		start := time.Now()
		err := l.listenOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(start) > maxBackoff {
			failures = 0
		}
		delay := delays.Delay(failures)
		l.config.Logger.WarnContext(ctx, "the connection for notifications is lost; until there is a new one, other servers' work is seen late",
			"error", err, "retry_in", delay)
		if backoff.Sleep(ctx, delay) != nil {
			return
		}
	}
}

// listenOnce listens until the connection is lost. It tells the engine to read everything
// when it starts and at every interval.
func (l *listener) listenOnce(ctx context.Context) error {
	conn, err := connect(ctx, l.conn)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := l.config.bound(context.WithoutCancel(ctx))
		defer cancel()
		// A failure to close loses nothing.
		_ = conn.Close(closing)
	}()
	bounded, cancel := l.config.bound(ctx)
	defer cancel()
	if _, err := conn.Exec(bounded, `LISTEN `+channel); err != nil {
		return err
	}
	for {
		l.tell(driver.Notice{Resync: true})
		if err := l.hearFor(ctx, conn, l.config.PollInterval); err != nil {
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
		// OnNotification gets the notifications.
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

// alive detects a connection whose other end vanished without closing it.
func (l *listener) alive(ctx context.Context, conn *pgx.Conn) error {
	bounded, cancel := l.config.bound(ctx)
	defer cancel()
	return conn.Ping(bounded)
}
