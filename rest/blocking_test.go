package rest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
)

func enqueue(t testing.TB, s agl.Store, inputs ...string) []string {
	t.Helper()
	p := agl.EnqueueRolloutsParams{}
	for _, in := range inputs {
		p.Rollouts = append(p.Rollouts, agl.EnqueueRollout{Input: []byte(in)})
	}
	queued, err := s.EnqueueRollouts(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(queued))
	for i, r := range queued {
		ids[i] = r.RolloutID
	}
	return ids
}

func finish(t testing.TB, s agl.Store, rolloutID string) {
	t.Helper()
	status := agl.RolloutSucceeded
	if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: rolloutID, Status: &status}); err != nil {
		t.Fatal(err)
	}
}

// TestDequeueBlocks lets a client wait for longer than a request may block.
func TestDequeueBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newStore(t)
		client := serve(t, engine, 0)
		start := time.Now()
		got, err := client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
		if err != nil || len(got.Rollouts) != 0 || got.Closed {
			t.Fatalf("got %+v, %v", got, err)
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("waited %s", took)
		}
		time.AfterFunc(70*time.Second, func() { enqueue(t, engine, "1") })
		start = time.Now()
		got, err = client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
		if err != nil || len(got.Rollouts) != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
		if took := time.Since(start); took != 70*time.Second {
			t.Errorf("woke after %s", took)
		}
		time.AfterFunc(time.Second, func() {
			if err := engine.CloseQueue(t.Context()); err != nil {
				t.Error(err)
			}
		})
		got, err = client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
		if err != nil || !got.Closed {
			t.Errorf("after the queue closed: %+v, %v", got, err)
		}
	})
}

// TestLostClaim loses the answers to a dequeue until the retry budget ends: what
// the server has claimed goes back into the queue.
func TestLostClaim(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(*http.Response) (*http.Response, error){
		"answer lost": func(*http.Response) (*http.Response, error) { return nil, errors.New("connection reset") },
		"answer unreadable": func(res *http.Response) (*http.Response, error) {
			res.Body = io.NopCloser(strings.NewReader("[{"))
			return res, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				engine := newStore(t)
				ids := enqueue(t, engine, "1")
				server := newServer(t, rest.ServerConfig{Store: engine})
				client, err := rest.NewClient(rest.ClientConfig{
					URL: "http://store", RetryBudget: 3 * time.Second,
					Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						w := httptest.NewRecorder()
						server.ServeHTTP(w, r)
						if r.Header.Get("Agl-Abandon") == "" {
							return lost(w.Result())
						}
						return w.Result(), nil
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); !agl.Transient(err) {
					t.Errorf("error is %v, want one that says that the answer did not come", err)
				}
				got, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
				if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != ids[0] {
					t.Errorf("the next runner got %+v, %v, want the rollout", got, err)
				}
			})
		})
	}
}

// A dequeue that its client has given up arrives at the server after the request
// that abandons it: it takes nothing from the queue, at once or later. A caller
// that repeats one with a key of its own does get its rollouts.
func TestLateDequeue(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"the client's key": "", "the caller's key": "k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := newStore(t)
			ids := enqueue(t, engine, "1")
			server := newServer(t, rest.ServerConfig{Store: engine})
			ctx, cancel := context.WithCancel(t.Context())
			var late *http.Request
			client, err := rest.NewClient(rest.ClientConfig{
				URL: "http://store",
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if late == nil { // it is still on its way when its caller leaves
						late = r.Clone(context.WithoutCancel(r.Context()))
						cancel()
						return nil, ctx.Err()
					}
					w := httptest.NewRecorder()
					server.ServeHTTP(w, r)
					return w.Result(), nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: key}); !errors.Is(err, context.Canceled) {
				t.Fatalf("error is %v, want the caller's", err)
			}
			if key == "" {
				answer := httptest.NewRecorder()
				server.ServeHTTP(answer, late)
				if answer.Code != http.StatusOK || answer.Body.String() != "[]" {
					t.Errorf("the late request got %d %s", answer.Code, answer.Body)
				}
			}
			got, err := client.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: key})
			if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != ids[0] || got.Rollouts[0].Attempt.SequenceID != 1 {
				t.Errorf("the next caller got %+v, %v, want the rollout", got, err)
			}
		})
	}
}

func TestWaitBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newStore(t)
		client := serve(t, engine, 0)
		ids := enqueue(t, engine, "1", "2")
		wait := func(timeout agl.Null[time.Duration]) ([]agl.Rollout, time.Duration) {
			start := time.Now()
			got, err := client.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: append(ids, "nope"), Timeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			return got, time.Since(start)
		}
		finish(t, engine, ids[1])
		if got, took := wait(agl.Some(90 * time.Second)); len(got) != 1 || got[0].RolloutID != ids[1] || took != 90*time.Second {
			t.Errorf("got %d rollouts after %s", len(got), took)
		}
		if got, took := wait(agl.Some(-time.Second)); len(got) != 1 || took != 0 {
			t.Errorf("without waiting: %d rollouts after %s", len(got), took)
		}
		time.AfterFunc(3*time.Minute, func() { finish(t, engine, ids[0]) })
		if got, took := wait(agl.Null[time.Duration]{}); len(got) != 2 || got[0].RolloutID != ids[0] || took != 3*time.Minute {
			t.Errorf("forever: %d rollouts after %s", len(got), took)
		}
	})
}

// TestDrain checks that blocked requests are answered, not cut off, when the
// server stops.
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newStore(t)
		ids := enqueue(t, engine, "1", "2")
		finish(t, engine, ids[0])
		if _, err := engine.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 5}); err != nil {
			t.Fatal(err)
		}
		server := newServer(t, rest.ServerConfig{Store: engine})
		listener := newPipeListener()
		web := &http.Server{Handler: server}
		var running sync.WaitGroup
		running.Go(func() { _ = web.Serve(listener) })
		answers := make(chan string, 3)
		for _, r := range []struct{ path, body string }{
			{"/queues/rollouts/dequeue", `{"wait_seconds":60}`},
			{"/waits/rollouts", `{"rollout_ids":["` + ids[0] + `","` + ids[1] + `"]}`},
			{"/events", ""},
		} {
			running.Go(func() { answers <- r.path + " " + rawRequest(t, listener, r.path, r.body) })
		}
		synctest.Wait()
		start := time.Now()
		server.Drain()
		if err := web.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		running.Wait()
		close(answers)
		var got []string
		for a := range answers {
			got = append(got, a)
		}
		slices.Sort(got)
		if len(got) != 3 || !strings.HasPrefix(got[0], "/events 200 OK : agl") || got[1] != "/queues/rollouts/dequeue 200 OK [] incomplete" ||
			!strings.Contains(got[2], ids[0]) || strings.Contains(got[2], ids[1]) || !strings.HasSuffix(got[2], "] incomplete") {
			t.Errorf("answers: %q", got)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
	})
}

// rawRequest sends a request on a connection of its own and returns the status
// and the body.
func rawRequest(t *testing.T, listener *pipeListener, path, body string) string {
	t.Helper()
	transport := &http.Transport{DialContext: listener.dial, DisableKeepAlives: true}
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://store/v1/agl"+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	defer res.Body.Close()
	return res.Status + " " + readAll(t, res.Body) + " " + res.Header.Get("Agl-Wait")
}

func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newStore(t)
		client := serve(t, engine, 0)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		type item struct {
			Kind      agl.EventKind
			RolloutID string
			Status    string
		}
		var got []item
		last := ""
		collect := func(since string, n int) func() {
			var reading sync.WaitGroup
			reading.Go(func() {
				for event, err := range client.Events(ctx, agl.EventsParams{Since: since}) {
					if err != nil {
						t.Errorf("event stream: %v", err)
						return
					}
					last = event.ID
					if event.Kind == agl.EventRollout {
						got = append(got, item{event.Kind, event.RolloutID, event.Status})
					}
					if len(got) >= n {
						return
					}
				}
			})
			synctest.Wait()
			return reading.Wait
		}
		wait := collect("", 1)
		time.Sleep(time.Minute) // heartbeats go by
		ids := enqueue(t, engine, "1")
		wait()
		// What happens while nobody listens is not lost.
		finish(t, engine, ids[0])
		collect(last, 2)()
		want := []item{{agl.EventRollout, ids[0], "queuing"}, {agl.EventRollout, ids[0], "succeeded"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for event, err := range client.Events(ctx, agl.EventsParams{Since: "no-such-event"}) {
			if err != nil || event.Kind != agl.EventReset {
				t.Errorf("after an unknown event: %+v, %v", event, err)
			}
			break
		}
	})
}

func TestEventErrors(t *testing.T) {
	t.Parallel()
	client := serve(t, agl.UnimplementedStore{}, 0)
	for _, err := range client.Events(t.Context(), agl.EventsParams{}) {
		if !errors.Is(err, agl.ErrUnimplemented) {
			t.Errorf("error is %v", err)
		}
	}
}

// TestRestart has a server go away and come back, with its store, between
// requests and under an event stream.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newStore(t)
		var current atomic.Pointer[pipeListener]
		start := func() (stop func()) {
			listener := newPipeListener()
			web := &http.Server{Handler: newServer(t, rest.ServerConfig{Store: engine})}
			var running sync.WaitGroup
			running.Go(func() { _ = web.Serve(listener) })
			current.Store(listener)
			return func() {
				if err := web.Close(); err != nil {
					t.Error(err)
				}
				running.Wait()
			}
		}
		client, err := rest.NewClient(rest.ClientConfig{
			URL: "http://store", RetryBudget: 20 * time.Second,
			Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return current.Load().dial(ctx, network, address)
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := start()
		var reading sync.WaitGroup
		var kinds []agl.EventKind
		reading.Go(func() {
			for event, err := range client.Events(t.Context(), agl.EventsParams{}) {
				if err != nil {
					t.Errorf("event stream: %v", err)
				}
				if kinds = append(kinds, event.Kind); len(kinds) == 2 {
					return
				}
			}
		})
		synctest.Wait()
		enqueue(t, client, "1")
		synctest.Wait()
		stop()
		restarted := make(chan func(), 1)
		time.AfterFunc(10*time.Second, func() { restarted <- start() })
		enqueue(t, client, "2")
		stats, err := client.Statistics(t.Context())
		if err != nil || stats.TotalRollouts != 2 {
			t.Errorf("statistics %+v, %v", stats, err)
		}
		reading.Wait() // for one event before the restart and one after it
		if want := []agl.EventKind{agl.EventRollout, agl.EventRollout}; !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
		(<-restarted)()
		begun := time.Now()
		if _, err := client.Statistics(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("error is %v, want unavailable", err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("gave up after %s", took)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEventsSilent has an event stream fall silent without ending, as when a
// router on the way forgets it: it is resumed after three missed heartbeats. The
// time that the reader takes over an event does not count.
func TestEventsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		event := func(id string) string {
			return "id: " + id + "\nevent: queue\ndata: {\"id\":\"" + id + "\",\"kind\":\"queue\",\"status\":\"closed\"}\n\n"
		}
		type opened struct {
			since string
			at    time.Duration
		}
		var streams []opened
		var writing sync.WaitGroup
		start := time.Now()
		client, err := rest.NewClient(rest.ClientConfig{
			URL: "http://store", MaxBackoff: time.Nanosecond, RetryBudget: 10 * time.Second,
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				streams = append(streams, opened{r.Header.Get("Last-Event-ID"), time.Since(start).Truncate(time.Second)})
				near, far := io.Pipe()
				id := len(streams)
				writing.Go(func() {
					_, err := io.WriteString(far, ": agl\n\n"+event(strconv.Itoa(id))+":\n\n")
					<-r.Context().Done()
					far.CloseWithError(errors.Join(err, r.Context().Err()))
				})
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: near, Request: r}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		for got, err := range client.Events(t.Context(), agl.EventsParams{}) {
			if err != nil {
				t.Errorf("event stream: %v", err)
			}
			if got.ID == "2" {
				break
			}
			time.Sleep(time.Hour)
		}
		writing.Wait()
		if want := []opened{{"", 0}, {"1", time.Hour + 45*time.Second}}; !slices.Equal(streams, want) {
			t.Errorf("streams were opened %v, want %v", streams, want)
		}
	})
}

// TestEventsLost breaks a stream before its first event: what happened
// meanwhile cannot be known, and the reader is told so, once.
func TestEventsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		streams := []string{": agl\n\n", "", ": agl\n\n:\n\nid: 7\nevent: queue\ndata: {\"id\":\"7\",\"kind\":\"queue\",\"status\":\"closed\"}\n\n", ": agl\n\n"}
		var since []string
		client, err := rest.NewClient(rest.ClientConfig{
			URL: "http://store", RetryBudget: 10 * time.Second,
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				since = append(since, r.Header.Get("Last-Event-ID"))
				if len(streams) == 0 {
					return nil, errors.New("connection refused")
				}
				stream := streams[0]
				streams = streams[1:]
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(stream)), Request: r}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []agl.EventKind
		var last error
		for event, err := range client.Events(t.Context(), agl.EventsParams{}) {
			if last = err; err == nil {
				kinds = append(kinds, event.Kind)
			}
		}
		if want := []agl.EventKind{agl.EventReset, agl.EventQueue}; !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
		if !errors.Is(last, agl.ErrUnavailable) {
			t.Errorf("the stream ended with %v", last)
		}
		if len(since) < 4 || since[2] != "" || since[3] != "7" {
			t.Errorf("streams were resumed after %q", since)
		}
	})
}
