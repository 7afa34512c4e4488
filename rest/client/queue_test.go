package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestDequeueBlocks lets a client wait for longer than a request may block.
func TestDequeueBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		c := serve(t, engine, 0)
		start := time.Now()
		got, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
		if err != nil || len(got.Rollouts) != 0 || got.Closed {
			t.Fatalf("got %+v, %v", got, err)
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("waited %s", took)
		}
		time.AfterFunc(70*time.Second, func() { enqueue(t, engine, "1") })
		start = time.Now()
		got, err = c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
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
		got, err = c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, Wait: 2 * time.Minute})
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
				engine := memorytest.Open(t)
				ids := enqueue(t, engine, "1")
				api := newServer(t, server.Config{Store: engine})
				c, err := client.New(client.Config{
					URL: "http://store", RetryTimeout: 3 * time.Second,
					Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
						w := httptest.NewRecorder()
						api.ServeHTTP(w, r)
						if strings.HasSuffix(r.URL.Path, "/return") {
							return w.Result(), nil
						}
						return lost(w.Result())
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); !agl.Transient(err) {
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

// TestLostClaimInOutage: the store claims a rollout and is away for longer than the retry budget, so that its claim cannot be returned. It is
// returned after the next dequeue that the store answers, and the one after that gets it.
func TestLostClaimInOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		ids := enqueue(t, engine, "1")
		api := newServer(t, server.Config{Store: engine})
		var executed, away bool
		c, err := client.New(client.Config{
			URL: "http://store", RetryTimeout: 3 * time.Second,
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				if !away || !executed {
					executed = true
					api.ServeHTTP(w, r)
				}
				if away {
					return nil, errors.New("connection reset")
				}
				return w.Result(), nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		away = true
		if _, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); !agl.Transient(err) {
			t.Errorf("error is %v, want one that says that the answer did not come", err)
		}
		away = false
		if got, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil || len(got.Rollouts) != 0 {
			t.Errorf("got %+v, %v, want an empty queue", got, err)
		}
		if got, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != ids[0] {
			t.Errorf("got %+v, %v, want the rollout that was claimed in the outage", got, err)
		}
	})
}

// A dequeue that its client has given up reaches the server only after its claims
// were returned: it takes nothing from the queue. A caller that repeats a dequeue
// with a key of its own does get its rollouts.
func TestLateDequeue(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"the client's key": "", "the caller's key": "k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := memorytest.Open(t)
			ids := enqueue(t, engine, "1")
			api := newServer(t, server.Config{Store: engine})
			ctx, cancel := context.WithCancel(t.Context())
			var late *http.Request
			c, err := client.New(client.Config{
				URL: "http://store",
				Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if late == nil { // it is still on its way when its caller leaves
						late = r.Clone(context.WithoutCancel(r.Context()))
						cancel()
						return nil, ctx.Err()
					}
					w := httptest.NewRecorder()
					api.ServeHTTP(w, r)
					return w.Result(), nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: key}); !errors.Is(err, context.Canceled) {
				t.Fatalf("error is %v, want the caller's", err)
			}
			if key == "" {
				answer := httptest.NewRecorder()
				api.ServeHTTP(answer, late)
				if answer.Code != http.StatusOK || answer.Body.String() != "[]" {
					t.Errorf("the late request got %d %s", answer.Code, answer.Body)
				}
			}
			got, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1, IdempotencyKey: key})
			if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != ids[0] || got.Rollouts[0].Attempt.SequenceID != 1 {
				t.Errorf("the next caller got %+v, %v, want the rollout", got, err)
			}
		})
	}
}

// serveTCP serves an engine on the loopback.
func serveTCP(t *testing.T, engine agl.Store) (url string) {
	t.Helper()
	web := httptest.NewServer(newServer(t, server.Config{Store: engine}))
	t.Cleanup(web.Close)
	return web.URL
}

// wantFirst checks that the next dequeue gets a rollout as if nobody had claimed it
// before.
func wantFirst(t *testing.T, s agl.Store, rolloutID string) {
	t.Helper()
	got, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 9, Wait: time.Minute})
	if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != rolloutID || got.Rollouts[0].Attempt.SequenceID != 1 {
		t.Errorf("the next runner got %+v, %v, want %s with its first attempt", got, err, rolloutID)
	}
}

// The context of a dequeue ends: while the request is blocked, or after the server
// has claimed for it and before its answer is read.
func TestContextEndsInDequeue(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"blocked": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := memorytest.Open(t)
			url := serveTCP(t, engine)
			ctx, cancel := context.WithCancel(t.Context())
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			asked := make(chan struct{}, 9)
			c, err := client.New(client.Config{URL: url, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				asked <- struct{}{}
				if answered && strings.HasSuffix(r.URL.Path, "/dequeue") {
					res, err := transport.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
					if err != nil {
						return nil, err
					}
					cancel()
					return nil, errors.Join(r.Context().Err(), res.Body.Close())
				}
				return transport.RoundTrip(r)
			})})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var ids []string
			if answered {
				ids = enqueue(t, engine, "1")
			} else {
				go func() {
					<-asked
					cancel()
				}()
			}
			if _, err := c.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute}); !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v, want the context's", err)
			}
			if !answered {
				ids = enqueue(t, engine, "1")
			}
			wantFirst(t, engine, ids[0])
		})
	}
}

// dequeueEnv makes the test binary a runner that dequeues from a server.
const dequeueEnv = "AGL_TEST_DEQUEUE_URL"

// dequeueForever dequeues until it is killed.
func dequeueForever(url string) error {
	c, err := client.New(client.Config{URL: url})
	if err == nil {
		_, err = c.DequeueRollouts(context.Background(), agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
	}
	return err
}

// The process of a client is killed while its dequeue is blocked: what comes into
// the queue afterwards is not claimed for it.
func TestKilledInDequeue(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	var blocked, left sync.WaitGroup
	blocked.Add(1)
	left.Add(1)
	url := serveTCP(t, &blockedStore{Store: engine, blocked: blocked.Done, left: left.Done})
	runner := exec.CommandContext(t.Context(), os.Args[0])
	runner.Env = append(os.Environ(), dequeueEnv+"="+url)
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	blocked.Wait()
	if err := runner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := runner.Wait(); err == nil {
		t.Error("the runner was not killed")
	}
	left.Wait()
	ids := enqueue(t, engine, "1")
	wantFirst(t, engine, ids[0])
}

// blockedStore tells when a dequeue begins and when it has ended.
type blockedStore struct {
	agl.Store
	blocked, left func()
}

func (s *blockedStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	s.blocked()
	defer s.left()
	return s.Store.DequeueRollouts(ctx, p)
}

// ReturnClaims reaches the store, and a store that cannot says so.
func TestReturnClaims(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	c := serve(t, engine, 0)
	ids := enqueue(t, engine, "1")
	got, err := c.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ReturnClaims(t.Context(), agl.ReturnClaimsParams{Claims: agl.ClaimsOf(got.Rollouts...)}); err != nil {
		t.Fatal(err)
	}
	wantFirst(t, c, ids[0])
	if err := serve(t, &stubStore{}, 0).ReturnClaims(t.Context(), agl.ReturnClaimsParams{}); !errors.Is(err, agl.ErrUnimplemented) {
		t.Errorf("error is %v, want unimplemented", err)
	}
}

func TestWaitBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		c := serve(t, engine, 0)
		ids := enqueue(t, engine, "1", "2")
		wait := func(timeout agl.Null[time.Duration]) ([]agl.Rollout, time.Duration) {
			start := time.Now()
			got, err := c.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: append(ids, "nope"), Timeout: timeout})
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
