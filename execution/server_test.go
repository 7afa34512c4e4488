package execution

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
)

// workerTable is a store with one worker whose state depends on the time.
type workerTable struct {
	agl.UnimplementedStore
	start  time.Time
	idleAt time.Duration // the worker reports; never when negative
	asksAt time.Duration // the worker dequeues again; never when negative
}

func (s *workerTable) QueryWorkers(context.Context, agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	at := func(d time.Duration) agl.Null[agl.Timestamp] { return agl.Some(agl.TimestampOf(s.start.Add(d))) }
	w := agl.Worker{WorkerID: "w", Status: agl.WorkerBusy, LastDequeueTime: at(-time.Second)}
	if now := time.Since(s.start); s.idleAt >= 0 && now >= s.idleAt {
		w.Status, w.LastIdleTime = agl.WorkerIdle, at(s.idleAt)
		if s.asksAt >= 0 && now >= s.asksAt {
			w.LastDequeueTime = at(s.asksAt)
		}
	}
	return agl.Page[agl.Worker]{Items: []agl.Worker{w}, Total: 1}, nil
}

func TestServerWaitsForBusyWorkers(t *testing.T) {
	t.Parallel()
	const never = -1
	tests := map[string]struct {
		idleAt, asksAt, want time.Duration
	}{
		"it has asked already":        {0, time.Microsecond, 20 * time.Millisecond},
		"it has reported just now":    {0, 100 * time.Millisecond, 100 * time.Millisecond},
		"it reports and asks":         {2 * time.Second, 2100 * time.Millisecond, 2100 * time.Millisecond},
		"it reports and never asks":   {2 * time.Second, never, 3 * time.Second},
		"it has died with its work":   {never, never, 10 * time.Second},
		"it is longer than we'd wait": {time.Minute, time.Minute, 10 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				table := &workerTable{start: start, idleAt: test.idleAt, asksAt: test.asksAt}
				if err := awaitWorkers(t.Context(), table, 10*time.Second); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != test.want {
					t.Errorf("returned after %s, want %s", took, test.want)
				}
			})
		})
	}
}

func TestClientURL(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ ip, want string }{
		{"127.0.0.1", "http://127.0.0.1:80"},
		{"0.0.0.0", "http://127.0.0.1:80"},
		{"::", "http://[::1]:80"},
		{"10.1.2.3", "http://10.1.2.3:80"},
	} {
		if got := ClientURL(fixedAddr{ip: test.ip}); got != test.want {
			t.Errorf("ClientURL(%s) = %s, want %s", test.ip, got, test.want)
		}
	}
}

type fixedAddr struct {
	net.Listener
	ip string
}

func (a fixedAddr) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.ip), Port: 80} }
