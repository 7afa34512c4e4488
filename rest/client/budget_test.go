package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// The budgets of rollouts and bytes hold over two servers of one store. What a failed request
// has reserved is returned.
func TestBudgetsOfTheStore(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	var urls []string
	for range 2 {
		handler, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: access.NewKeys(store)})
		if err != nil {
			t.Fatal(err)
		}
		api := httptest.NewServer(handler)
		t.Cleanup(api.Close)
		urls = append(urls, api.URL)
	}
	open := func(n int, token string) *client.Client {
		c, err := client.New(client.Config{URL: urls[n%2], Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	root := open(0, "s3cret")
	used := func(id string) access.Amounts { // once all requests are settled, which is after their answers
		t.Helper()
		for {
			keys, err := root.ListKeys(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				if k.ID == id && k.Usage.Reserved == (access.Amounts{}) {
					return k.Usage.Spent
				}
			}
		}
	}
	create := func(limits access.Limits) access.CreatedKey {
		key, err := root.CreateKey(t.Context(), access.NewKey{Name: "k", Scopes: access.Train, Limits: limits})
		if err != nil || key.Limits != limits {
			t.Fatalf("%+v, %v", key, err)
		}
		return key
	}

	key := create(access.Limits{MaxRollouts: 10})
	var in atomic.Int64
	var group sync.WaitGroup
	for i := range 40 {
		c := open(i, key.Text)
		group.Go(func() {
			_, err := c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`1`)}}})
			switch {
			case err == nil:
				in.Add(1)
			case agl.ErrorCode(err) != agl.CodeExhausted || !strings.Contains(err.Error(), "the key "+key.ID+" has a budget of 10 rollouts: 0 are left"):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := used(key.ID); in.Load() != 10 || got.Rollouts != 10 {
		t.Errorf("%d rollouts were let in, and %+v are counted", in.Load(), got)
	}

	key = create(access.Limits{MaxBytes: 5000})
	c := open(0, key.Text)
	enqueue := func(input string) error {
		_, err := c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`"` + input + `"`)}}})
		return err
	}
	if err := enqueue(strings.Repeat("a", 6000)); agl.ErrorCode(err) != agl.CodeExhausted || !strings.Contains(err.Error(), "a budget of 5000 bytes: 5000 are left") {
		t.Errorf("more than the budget: %v", err)
	}
	if _, err := c.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: "nobody"}); agl.ErrorCode(err) != agl.CodeNotFound {
		t.Errorf("an unknown rollout: %v", err)
	}
	if got := used(key.ID); got.Bytes != 0 {
		t.Errorf("failed requests have used %+v", got)
	}
	if err := enqueue(strings.Repeat("a", 3000)); err != nil {
		t.Error(err)
	}
	if got := used(key.ID); got.Bytes < 3000 || got.Bytes > 4000 || got.Rollouts != 1 {
		t.Errorf("used: %+v", got)
	}
	if err := enqueue(strings.Repeat("a", 3000)); agl.ErrorCode(err) != agl.CodeExhausted {
		t.Errorf("more than is left: %v", err)
	}
}

// A proxy whose store is away goes by the limits of the project that it has heard of last, and does
// not take a project for one without limits before it has heard any.
func TestLimitsOfAProjectThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := access.Limits{MaxTokens: 10}
		store := memorytest.Open(t)
		api := http.StripPrefix("/p/a", newServer(t, server.Config{Store: store, Token: "s3cret", Keys: access.NewProjectKeys(store, access.NewProjectLimits(func(context.Context) (access.Limits, error) { return limits, nil }))}))
		away := false
		open := func() *access.ProjectLimits {
			c, err := client.New(client.Config{URL: "http://store/p/a", Token: "s3cret", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				if away {
					w.WriteHeader(http.StatusServiceUnavailable)
				} else {
					api.ServeHTTP(w, r)
				}
				return w.Result(), nil
			})})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c.ProjectLimits()
		}
		early, late := open(), open()
		if got, err := early.Get(t.Context()); err != nil || got != limits {
			t.Errorf("got %+v, %v", got, err)
		}
		away = true
		time.Sleep(2 * access.StoreTTL) // beyond what it goes by
		if got, err := early.Get(t.Context()); err != nil || got != limits {
			t.Errorf("a store that is away: got %+v, %v", got, err)
		}
		if got, err := late.Get(t.Context()); agl.ErrorCode(err) != agl.CodeUnavailable {
			t.Errorf("before it has said any: got %+v, %v", got, err)
		}
		away = false
		time.Sleep(access.StoreTTL)
		if got, err := late.Get(t.Context()); err != nil || got != limits {
			t.Errorf("once it has said some: got %+v, %v", got, err)
		}
	})
}
