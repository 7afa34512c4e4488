package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

// Ids are in the order in which an attempt's calls began, whatever the order in
// which they end, and no call waits for its id before it is forwarded.
func TestSequenceOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		forwarded := 0
		store := &spans{reserve: func() error {
			time.Sleep(time.Second)
			return nil
		}}
		p := unplugged(t, func(r *http.Request) (string, error) {
			mu.Lock()
			forwarded++
			id := forwarded
			mu.Unlock()
			time.Sleep(time.Minute / time.Duration(id)) // later calls end earlier
			return completion(fmt.Sprint("call-", id), []int{1}, []int{2}), nil
		}, store, nil)
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { call(t.Context(), p, attemptPath) })
			synctest.Wait() // it has begun, and its order with it
		}
		if forwarded != 5 {
			t.Errorf("%d calls were forwarded while the store was busy, want 5", forwarded)
		}
		group.Wait()
		if err := p.Flush(t.Context(), []string{"ro-1"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range store.calls() {
			if id, _ := c.Attributes.GetString(agl.AttrGenAIResponseID); id != fmt.Sprint("call-", c.SequenceID) {
				t.Errorf("%s has sequence id %d", id, c.SequenceID)
			}
		}
		if bySequence := store.next["ro-1"]; bySequence != 5 {
			t.Errorf("%d ids were taken for 5 calls", bySequence)
		}
		closed(t, p)
	})
}

// distant is a store behind a network. It has no ids for the rollout "bad".
type distant struct {
	*spans

	batches [][]string // the rollouts of each request for several attempts
}

func (d *distant) Capabilities() agl.Capabilities {
	return agl.Capabilities{ReserveSequenceIDsOf: true}
}

func (d *distant) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	if p.RolloutID == "bad" {
		return 0, agl.Errorf(agl.CodeInvalid, "rollout_id: got bad, must be good")
	}
	return d.spans.ReserveSequenceIDs(ctx, p)
}

func (d *distant) ReserveSequenceIDsOf(ctx context.Context, attempts []agl.ReserveSequenceIDsParams) ([]int64, error) {
	var rollouts []string
	for _, p := range attempts {
		rollouts = append(rollouts, p.RolloutID)
	}
	d.batches = append(d.batches, rollouts)
	var first []int64
	for _, p := range attempts {
		id, err := d.ReserveSequenceIDs(ctx, p)
		if err != nil {
			return nil, err
		}
		first = append(first, id)
	}
	return first, nil
}

// Calls that want ids while a request for some is under way share the next one,
// and an attempt that cannot have any takes none from the others.
func TestSequenceBatch(t *testing.T) {
	t.Parallel()
	for _, rollouts := range [][]string{{"a", "b", "c"}, {"a", "bad", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			store := &distant{spans: &spans{reserve: func() error {
				time.Sleep(time.Second)
				return nil
			}}}
			p := unplugged(t, func(r *http.Request) (string, error) {
				time.Sleep(time.Minute)
				return always(r)
			}, nil, func(c *proxy.Config) { c.Spans = store })
			var group sync.WaitGroup
			for _, id := range append([]string{"first"}, rollouts...) {
				for range 2 {
					group.Go(func() { call(t.Context(), p, strings.Replace(attemptPath, "ro-1", id, 1)) })
					time.Sleep(10 * time.Millisecond) // the first request is on its way
				}
			}
			group.Wait()
			for _, id := range append([]string{"first"}, rollouts...) {
				if err := p.Flush(t.Context(), []string{id}); (err != nil) != (id == "bad") {
					t.Errorf("flush %s: %v", id, err)
				}
			}
			if want := [][]string{append(rollouts, "first")}; !slices.EqualFunc(store.batches, want, slices.Equal) {
				t.Errorf("requests for %v, want %v", store.batches, want)
			}
			got := make(map[string][]int64)
			for _, c := range store.calls() {
				got[c.RolloutID] = append(got[c.RolloutID], c.SequenceID)
			}
			for _, id := range append([]string{"first"}, rollouts...) {
				slices.Sort(got[id]) // a request that failed for one may leave a gap for others
				if id != "bad" && (len(got[id]) != 2 || got[id][1] != got[id][0]+1) {
					t.Errorf("%s: sequence ids %v, want two in a row", id, got[id])
				}
			}
			if err := p.Close(t.Context()); err != nil {
				t.Log(err) // the loss once more
			}
		})
	}
}

// A distant store is asked for ids once the first bytes are on their way, or at
// once when the end of a reply waits for one.
func TestSequenceDelay(t *testing.T) {
	t.Parallel()
	for backend, want := range map[time.Duration]time.Duration{0: 0, time.Millisecond: time.Millisecond, time.Minute: 2 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			began, asked := time.Now(), time.Duration(-1)
			store := &distant{spans: &spans{reserve: func() error {
				asked = time.Since(began)
				return nil
			}}}
			p := unplugged(t, func(r *http.Request) (string, error) {
				time.Sleep(backend)
				return always(r)
			}, nil, func(c *proxy.Config) { c.Spans = store })
			call(t.Context(), p, attemptPath)
			if took := time.Since(began); asked != want || took != backend {
				t.Errorf("a reply after %v took %v, and the store was asked after %v, want %v", backend, took, asked, want)
			}
			closed(t, p)
		})
	}
}

// The end of a reply waits for the sequence id of a store under load, so that a reward of another process that follows the
// reply follows the call. Only the first reply waits for a store that hangs, until it answers again.
func TestReplyWaitsForItsSequenceID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		store := &spans{reserve: func() error {
			time.Sleep(time.Duration(delay.Load()))
			return nil
		}}
		p := unplugged(t, always, store, nil)
		for _, one := range []struct {
			what        string
			delay       time.Duration // of the store
			least, most time.Duration // of the call
		}{
			{"busy", 4 * time.Second, 4 * time.Second, 5 * time.Second},
			{"hanging", 20 * time.Second, 5 * time.Second, 5 * time.Second},
			{"still hanging", 20 * time.Second, 0, 0},
			{"busy again", 4 * time.Second, 4 * time.Second, 5 * time.Second},
		} {
			delay.Store(int64(one.delay))
			began := time.Now()
			if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", one.what, w.Code, w.Body)
			}
			if took := time.Since(began); took < one.least || took > one.most {
				t.Errorf("%s: the call took %v, want %v to %v", one.what, took, one.least, one.most)
			}
			if one.what == "still hanging" {
				time.Sleep(time.Minute) // the store has answered
			}
		}
		closed(t, p)
	})
}
