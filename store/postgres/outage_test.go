package postgres_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// ownServer starts a server that the test may stop, with one database.
func ownServer(t *testing.T) (s *postgrestest.Server, database string) {
	t.Helper()
	if os.Getenv(postgrestest.URLVariable) != "" {
		t.Skip("the server is not ours to stop")
	}
	s, err := postgrestest.Start(t.Context(), postgrestest.Config{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if database, err = s.NewDatabase(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, database
}

// TestRestartUnderLoad stops and kills the database while two servers work. Their
// callers get ErrUnavailable and nothing else, repeat with their keys, and find
// everything that was ever acknowledged.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	db, databaseURL := ownServer(t)
	config := postgres.Config{URL: databaseURL, ConnectTimeout: time.Second, StatementTimeout: 5 * time.Second, PollInterval: time.Second}
	engines := []*store.Store{engine(t, config), engine(t, config)}
	const callers, outages = 8, 4
	var (
		stop   atomic.Bool
		failed atomic.Int64
		all    sync.WaitGroup
		acked  [callers][]string
	)
	for i := range callers {
		all.Go(func() {
			for n := 0; !stop.Load(); n++ {
				acked[i] = append(acked[i], untilDone(t, engines, i+n, "key "+strconv.Itoa(i)+" "+strconv.Itoa(n), &failed))
			}
		})
	}
	for i := range outages {
		awaitWork(t, engines[0], (i+1)*20)
		end := []func(context.Context) error{db.Stop, db.Kill}[i%2]
		if err := end(t.Context()); err != nil {
			t.Error(err)
		}
		// After a kill the connections live on for a moment.
		if err := engines[0].Ready(t.Context()); i%2 == 0 && !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("ready says %v without a database", err)
		}
		if err := db.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	awaitWork(t, engines[1], (outages+1)*20)
	stop.Store(true)
	all.Wait()
	if err := engines[0].Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	if failed.Load() == 0 {
		t.Error("no call has failed")
	}
	want := map[string]bool{}
	for _, ids := range acked {
		for _, id := range ids {
			if want[id] {
				t.Errorf("rollout %s was made for two keys", id)
			}
			want[id] = true
		}
	}
	page, err := engines[1].QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Items {
		delete(want, page.Items[i].RolloutID)
	}
	// A caller that was stopped between its two answers has acknowledged none.
	if len(want) > 0 {
		t.Errorf("%d rollouts were acknowledged and are gone", len(want))
	}
}

// untilDone enqueues a rollout and reads it, and repeats while the database is
// unavailable.
func untilDone(t *testing.T, engines []*store.Store, turn int, key string, failed *atomic.Int64) string {
	p := agl.EnqueueRolloutsParams{Rollouts: numbered(1), IdempotencyKey: key}
	for {
		turn++
		begin := time.Now()
		got, err := engines[turn%len(engines)].EnqueueRollouts(t.Context(), p)
		if err == nil {
			_, err = engines[(turn+1)%len(engines)].GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: got[0].RolloutID})
		}
		switch {
		case err == nil:
			return got[0].RolloutID
		case !errors.Is(err, agl.ErrUnavailable):
			t.Errorf("error %v (%s), want CodeUnavailable", err, agl.ErrorCode(err))
			return ""
		case time.Since(begin) > patience:
			t.Errorf("the error came after %v", time.Since(begin))
		}
		failed.Add(1)
	}
}

// awaitWork returns when there are so many rollouts.
func awaitWork(t *testing.T, s *store.Store, n int) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; {
		stats, err := s.Statistics(t.Context())
		if err == nil && stats.TotalRollouts >= n {
			return
		}
	}
	t.Errorf("no %d rollouts within %v", n, patience)
}

// TestListenerComesBack kills the listening connections: the next wake-up arrives
// nevertheless.
func TestListenerComesBack(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	config := postgres.Config{URL: databaseURL, PollInterval: time.Hour}
	a, b := engine(t, config), engine(t, config)
	for range 3 {
		done := make(chan error, 1)
		go func() {
			got, err := b.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: patience})
			done <- want(len(got.Rollouts) == 1, err, "no claim")
		}()
		err := postgrestest.Execute(t.Context(), databaseURL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND query = 'LISTEN agl'`)
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, a, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestEveryConnectionKilled kills all connections while calls are made.
func TestEveryConnectionKilled(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	for i := range 5 {
		r := enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})[0]
		execute(t, databaseURL, disconnect)
		// A connection that was idle is replaced without anybody noticing.
		if i%2 == 0 {
			enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
		} else if _, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: r.RolloutID}); err != nil {
			t.Errorf("read: %v", err)
		}
	}
}

// TestStandby makes the database a standby under a store, as a failover does. Writes are refused as unavailable, so that clients
// repeat them, and are accepted again after its promotion.
func TestStandby(t *testing.T) {
	t.Parallel()
	db, databaseURL := ownServer(t)
	s := engine(t, postgres.Config{URL: databaseURL, PollInterval: time.Hour})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})

	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	var data string
	err = conn.QueryRow(t.Context(), `SHOW data_directory`).Scan(&data)
	if err := errors.Join(err, conn.Close(t.Context()), db.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	signal := filepath.Join(data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(signal, 0o666); err != nil { // the server may run as another user
		t.Fatal(err)
	}
	if err := db.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "standby or read-only") {
			t.Errorf("got error %v, want unavailable, because the database is a standby or read-only", err)
		}
	}
	if err := s.Ready(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("ready: %v, want unavailable", err)
	}

	execute(t, databaseURL, `SELECT pg_promote()`)
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
}

// TestReadOnlyByDefault sets default_transaction_read_only under a store, as services do when a disk is full. The database is
// not ready, and takes no writes.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	_, databaseURL := ownServer(t)
	s := engine(t, postgres.Config{URL: databaseURL, PollInterval: time.Hour})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	execute(t, databaseURL, `ALTER SYSTEM SET default_transaction_read_only = on`)
	execute(t, databaseURL, `SELECT pg_reload_conf()`)
	for name, call := range map[string]func() error{
		"ready": func() error { return s.Ready(t.Context()) },
		"write": func() error {
			_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
			return err
		},
	} {
		var err error
		for tries := 0; err == nil && tries < 2000; tries++ { // until each connection has read the configuration
			err = call()
		}
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "standby or read-only") {
			t.Errorf("%s: %v, want unavailable, because the database is read-only", name, err)
		}
	}
}

// TestIsolationByDefault has connections whose transactions are isolated otherwise by default, as the settings of a server, a
// database or a role may say.
func TestIsolationByDefault(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"repeatable read", "serializable"} {
		s := engine(t, postgres.Config{URL: server.Database(t) + "&default_transaction_isolation=" + url.PathEscape(isolation)})
		enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	}
}

// TestIdleTransaction suspends a store between the read and the write of a batch for longer than the database lets a transaction
// be idle. The batch is refused as unavailable, so that clients repeat it.
func TestIdleTransaction(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	d := open(t, postgres.Config{URL: databaseURL + "&idle_in_transaction_session_timeout=200"})
	b, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	var got driver.Loaded
	if err := b.Load(t.Context(), &driver.LoadParams{Rollouts: []string{"r"}}, &got); err != nil {
		t.Fatal(err)
	}
	for idle := true; idle; { // until the database has ended the transaction
		conn, err := pgx.Connect(t.Context(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction')`).Scan(&idle)
		if err := errors.Join(err, conn.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	err = b.Apply(t.Context(), &driver.Changes{Rollouts: []driver.RolloutChange{{New: true, Rollout: &agl.Rollout{RolloutID: "r", Status: agl.RolloutQueuing}}}})
	if !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("got error %v, want unavailable", err)
	}
}

// disconnect ends the connections of others.
const disconnect = `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// gate forwards connections to the database, or swallows all traffic.
type gate struct {
	listener net.Listener
	target   string
	closed   atomic.Bool
	conns    sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn
}

// newGate returns a gate and the database's URL through it.
func newGate(t *testing.T, databaseURL string) (*gate, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, target: u.Host}
	g.conns.Go(g.accept)
	t.Cleanup(func() {
		l.Close()
		g.cut()
		g.conns.Wait()
	})
	u.Host = l.Addr().String()
	return g, u.String()
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		remote, err := net.Dial("tcp", g.target)
		if err != nil {
			client.Close()
			continue
		}
		g.mu.Lock()
		g.open = append(g.open, client, remote)
		g.mu.Unlock()
		g.conns.Go(func() { g.forward(client, remote) })
		g.conns.Go(func() { g.forward(remote, client) })
	}
}

// forward passes bytes on, and swallows them while the gate is closed.
func (g *gate) forward(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if g.closed.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.open {
		c.Close()
	}
	g.open = nil
}

// TestSilence swallows all traffic: calls end nevertheless, and work again afterwards.
func TestSilence(t *testing.T) {
	t.Parallel()
	g, databaseURL := newGate(t, server.Database(t))
	s := engine(t, postgres.Config{URL: databaseURL, ConnectTimeout: time.Second, StatementTimeout: time.Second})
	r := enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})[0]
	g.closed.Store(true)
	for name, call := range map[string]func() error{
		"write": func() error {
			_, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
			return err
		},
		"read": func() error {
			_, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: r.RolloutID})
			return err
		},
		"ping": func() error { return s.Ready(t.Context()) },
	} {
		begin := time.Now()
		if err := call(); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("%s: error %v, want CodeUnavailable", name, err)
		}
		if d := time.Since(begin); d > patience {
			t.Errorf("%s took %v", name, d)
		}
	}
	g.closed.Store(false)
	g.cut()
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
}

// TestAnswerLost swallows the answer to a commit: the caller learns that the result is
// unknown, and finds what it created by its key.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	direct := server.Database(t)
	g, databaseURL := newGate(t, direct)
	s := engine(t, postgres.Config{URL: databaseURL, StatementTimeout: 3 * time.Second})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	// The batch waits in its commit for the counter of events; meanwhile the gate
	// closes, and then the commit goes through.
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, direct)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `LOCK TABLE agl.event_counter IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	p := agl.EnqueueRolloutsParams{Rollouts: numbered(1), IdempotencyKey: "k"}
	done := make(chan error, 1)
	go func() {
		_, err := s.EnqueueRollouts(ctx, p)
		done <- err
	}()
	for waiting := false; !waiting; {
		err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'agl.event_counter'::regclass)`).
			Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	g.closed.Store(true)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, agl.ErrUnavailable) || errors.Is(err, driver.ErrRetry) {
		t.Errorf("error %v, want CodeUnavailable and no rerun", err)
	}
	g.closed.Store(false)
	g.cut()
	var made string
	if err := conn.QueryRow(ctx, `SELECT rollout_id FROM agl.rollouts ORDER BY ordinal DESC LIMIT 1`).Scan(&made); err != nil {
		t.Fatal(err)
	}
	if got := enqueue(t, s, p)[0].RolloutID; got != made {
		t.Errorf("the repeat made %s, not %s", got, made)
	}
}

// TestKilledWithARow: a batch has read the first of its rollouts, and waits for the second, when its connection is ended. The first
// changes before the batch gets it again: what it had read no longer counts.
func TestKilledWithARow(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL, MaxConns: 4, PollInterval: time.Hour, LockTimeout: patience, StatementTimeout: patience})
	first, second := start(t, s, agl.StartRolloutParams{}), start(t, s, agl.StartRolloutParams{})
	if first.RolloutID > second.RolloutID { // rows are locked in this order
		first, second = second, first
	}
	holder, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(t.Context())
	if _, err := holder.Exec(t.Context(), `BEGIN; SELECT FROM agl.rollouts WHERE rollout_id = '`+second.RolloutID+`' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	awaitBlocked := func(n int) {
		for ask(t, databaseURL, `SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) != strconv.Itoa(n) {
			if t.Context().Err() != nil {
				t.Fatal("nothing waits")
			}
		}
	}
	var both []agl.Span
	for _, r := range []agl.AttemptedRollout{first, second} {
		both = append(both, agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: "s", TraceID: "t", Name: "n"})
	}
	added := make(chan error, 2)
	go func() {
		_, err := s.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: both})
		added <- err
	}()
	awaitBlocked(1)
	go func() { // gets the lock of the first when the batch has lost it
		added <- postgrestest.Execute(t.Context(), databaseURL, `UPDATE agl.rollouts SET status = 'cancelled', end_time = start_time WHERE rollout_id = '`+first.RolloutID+`'`)
	}()
	awaitBlocked(2)
	execute(t, databaseURL, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'agl' AND wait_event_type = 'Lock'`)
	awaitBlocked(1)
	if _, err := holder.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-added; err != nil {
			t.Error(err)
		}
	}
	got, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: first.RolloutID})
	if err != nil || got.Status != agl.RolloutCancelled {
		t.Errorf("the rollout is %s, %v, want cancelled", got.Status, err)
	}
}
