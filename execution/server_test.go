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

func (s *workerTable) worker() agl.Worker {
	w := agl.Worker{WorkerID: "w", Status: agl.WorkerBusy, LastDequeueTime: agl.Some[agl.Timestamp](1)}
	if now := time.Since(s.start); s.idleAt >= 0 && now >= s.idleAt {
		w.Status = agl.WorkerIdle
		if s.asksAt >= 0 && now >= s.asksAt {
			w.LastDequeueTime = agl.Some[agl.Timestamp](2)
		}
	}
	return w
}

func (s *workerTable) QueryWorkers(context.Context, agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	page := agl.Page[agl.Worker]{}
	if w := s.worker(); w.Status == agl.WorkerBusy {
		page.Items, page.Total = append(page.Items, w), 1
	}
	return page, nil
}

func (s *workerTable) GetWorker(context.Context, agl.GetWorkerParams) (agl.Worker, error) {
	return s.worker(), nil
}

func TestServerWaitsForBusyWorkers(t *testing.T) {
	t.Parallel()
	const never = -1
	tests := map[string]struct {
		idleAt, asksAt, want time.Duration
	}{
		"nobody is busy":              {0, never, 0},
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
		if got := clientURL(fixedAddr{ip: test.ip}); got != test.want {
			t.Errorf("clientURL(%s) = %s, want %s", test.ip, got, test.want)
		}
	}
}

type fixedAddr struct {
	net.Listener
	ip string
}

func (a fixedAddr) Addr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.ip), Port: 80} }
