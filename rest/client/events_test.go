package client_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		c := serve(t, engine, 0)
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
				for event, err := range c.Events(ctx, agl.EventsParams{Since: since}) {
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
		for event, err := range c.Events(ctx, agl.EventsParams{Since: "no-such-event"}) {
			if err != nil || event.Kind != agl.EventReset {
				t.Errorf("after an unknown event: %+v, %v", event, err)
			}
			break
		}
	})
}

func TestEventErrors(t *testing.T) {
	t.Parallel()
	c := serve(t, agl.UnimplementedStore{}, 0)
	for _, err := range c.Events(t.Context(), agl.EventsParams{}) {
		if !errors.Is(err, agl.ErrUnimplemented) {
			t.Errorf("error is %v", err)
		}
	}
}

// A stream of events ends with the same errors in process and over HTTP: the
// context's when that ends, ErrUnavailable when the store closes.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, engine agl.Store) agl.Store{
		"in process": func(_ *testing.T, engine agl.Store) agl.Store { return engine },
		"over HTTP":  func(t *testing.T, engine agl.Store) agl.Store { return serve(t, engine, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				driver, err := memory.New(memory.Config{})
				if err != nil {
					t.Fatal(err)
				}
				engine, err := store.New(t.Context(), store.Config{Driver: driver})
				if err != nil {
					t.Fatal(err)
				}
				s := open(t, engine)
				var last error
				read := func(ctx context.Context) (wait func()) {
					var reading sync.WaitGroup
					reading.Go(func() {
						for _, err := range s.Events(ctx, agl.EventsParams{}) {
							last = err
						}
					})
					synctest.Wait()
					return reading.Wait
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				wait := read(ctx)
				cancel(errors.New("nobody listens"))
				if wait(); !errors.Is(last, context.Canceled) || !agl.IsContextError(last) {
					t.Errorf("after the end of the context: %v", last)
				}
				wait = read(t.Context())
				if err := engine.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if wait(); !errors.Is(last, agl.ErrUnavailable) {
					t.Errorf("after the end of the store: %v", last)
				}
			})
		})
	}
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
		c, err := client.New(client.Config{
			URL: "http://store", MaxBackoff: time.Nanosecond, RetryTimeout: 10 * time.Second,
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
		for got, err := range c.Events(t.Context(), agl.EventsParams{}) {
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
		c, err := client.New(client.Config{
			URL: "http://store", RetryTimeout: 10 * time.Second,
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
		for event, err := range c.Events(t.Context(), agl.EventsParams{}) {
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

// toldStore is a store that remembers how its events are read, and has one.
type toldStore struct {
	agl.UnimplementedStore
	asked chan agl.EventsParams
}

func (s toldStore) Events(_ context.Context, p agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		s.asked <- p
		yield(agl.Event{ID: "1", Kind: agl.EventQueue, Status: "open"}, nil)
	}
}

// How often a reader wants to be told goes to the store behind the server, which may hold changes back.
func TestEventsEvery(t *testing.T) {
	t.Parallel()
	for _, every := range []time.Duration{0, 250 * time.Millisecond} {
		told := toldStore{asked: make(chan agl.EventsParams, 1)}
		api, err := server.New(server.Config{Store: told})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(api)
		defer web.Close()
		c, err := client.New(client.Config{URL: web.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for e, err := range c.Events(t.Context(), agl.EventsParams{Since: "0", Every: every}) {
			if err != nil || e.ID != "1" {
				t.Errorf("event %v, %v", e, err)
			}
			break
		}
		if got, want := <-told.asked, (agl.EventsParams{Since: "0", Every: every}); got != want {
			t.Errorf("the store was asked for %+v, want %+v", got, want)
		}
	}
}
