//go:build unix

package e2e

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
)

// startStore runs agl store in memory on a free port and returns its URL.
func startStore(t *testing.T) (server *started, url string) {
	t.Helper()
	return startStoreOn(t, "memory:")
}

// startStoreOn is startStore over a database.
func startStoreOn(t *testing.T, database string, flags ...string) (server *started, url string) {
	t.Helper()
	server = startMerged(t, aglBinary, append([]string{"store", "--port", "0", "--db", database}, flags...), nil)
	return server, server.awaitStore()
}

// awaitStore returns the URL at which a store listens.
func (s *started) awaitStore() string {
	s.t.Helper()
	listening := regexp.MustCompile(`store listens.* url=(\S+)`)
	deadline := time.After(longest)
	for {
		what, rest, ok := s.next(deadline, "the store to listen")
		if !ok {
			s.t.Fatalf("agl store ended: %v", s.seen)
		}
		if m := listening.FindStringSubmatch(what + " " + rest); m != nil {
			return m[1]
		}
	}
}

func connect(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// statuses maps every rollout of a store to its status.
func statuses(t *testing.T, s agl.Store) map[string]agl.RolloutStatus {
	t.Helper()
	page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]agl.RolloutStatus{}
	for _, r := range page.Items {
		all[r.RolloutID] = r.Status
	}
	return all
}

// awaitWorkers waits until this number of workers have asked the store for work.
func awaitWorkers(t *testing.T, s agl.Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := s.QueryWorkers(ctx, agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerIdle, agl.WorkerBusy}})
		if err != nil {
			t.Fatal(err)
		}
		if page.Total >= n {
			return
		}
		<-tick.C
	}
}

// checkKept fails if rollouts that agents have returned are not succeeded in the store, except
// for those whose runner was killed before it could report.
func checkKept(t *testing.T, returned []string, there map[string]agl.RolloutStatus, killed int) {
	t.Helper()
	var lost []string
	for _, id := range returned {
		if there[id] != agl.RolloutSucceeded {
			lost = append(lost, id+" is "+string(there[id]))
		}
	}
	if len(lost) > killed {
		slices.Sort(lost)
		t.Errorf("%d of %d finished rollouts are lost, at most %d may be: %v", len(lost), len(returned), killed, lost)
	}
}
