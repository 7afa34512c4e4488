package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// failingWriter is the connection of a client that is gone.
type failingWriter struct{ http.ResponseWriter }

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A claim goes back when its answer cannot be written, or its client has left.
func TestUnsentClaims(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	queued, err := engine.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte("1")}, {Input: []byte("2")}}})
	if err != nil {
		t.Fatal(err)
	}
	dequeue := func(ctx context.Context) *http.Request {
		return httptest.NewRequestWithContext(ctx, "POST", "/v1/agl/queues/rollouts/dequeue", http.NoBody)
	}
	api.ServeHTTP(failingWriter{httptest.NewRecorder()}, dequeue(t.Context()))

	gone, leave := context.WithCancel(t.Context())
	leave()
	api.ServeHTTP(httptest.NewRecorder(), dequeue(gone))

	for _, want := range queued {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, dequeue(t.Context()))
		var got []agl.AttemptedRollout
		decode(t, w.Body.Bytes(), &got)
		if len(got) != 1 || got[0].RolloutID != want.RolloutID || got[0].Attempt.SequenceID != 1 {
			t.Errorf("claimed %s, want %s with its first attempt", w.Body, want.RolloutID)
		}
	}
}

// dequeue claims a rollout through a server, with or without an idempotency key.
func dequeue(t *testing.T, api http.Handler, header ...string) (claimed []agl.AttemptedRollout) {
	t.Helper()
	w := ask(t, api, "POST", "/v1/agl/queues/rollouts/dequeue", "", header...)
	decode(t, w.Body.Bytes(), &claimed)
	return claimed
}

func TestReturnClaims(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	const path, header, key = "/v1/agl/queues/rollouts/return", "Idempotency-Key", "k"
	giveBack := func(body string, status int, want string) {
		t.Helper()
		if w := ask(t, api, "POST", path, body); w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s, want %d %s", body, w.Code, w.Body, status, want)
		}
	}
	ids := enqueue(t, engine, "1")
	first := dequeue(t, api)[0]
	giveBack(fmt.Sprintf(`{"claims":[{"rollout_id":%q,"attempt_id":%q}]}`, ids[0], first.Attempt.AttemptID), 204, "")

	// By the key of a dequeue, which can then be used again.
	for range 2 {
		if got := dequeue(t, api, header, key); len(got) != 1 || got[0].RolloutID != ids[0] || got[0].Attempt.SequenceID != 1 {
			t.Errorf("claimed %+v, want the rollout with its first attempt", got)
		}
		giveBack(`{"idempotency_key":"k"}`, 204, "")
	}

	// A revoked key claims nothing, whether it was used before or not.
	dequeue(t, api, header, key)
	giveBack(`{"idempotency_key":"k","revoke_key":true}`, 204, "")
	giveBack(`{"idempotency_key":"late","revoke_key":true}`, 204, "")
	for _, revoked := range []string{key, "late"} {
		if got := dequeue(t, api, header, revoked); len(got) != 0 {
			t.Errorf("claimed %+v with the revoked key %s", got, revoked)
		}
	}

	giveBack(`{"claims":[{"rollout_id":"ro-nope","attempt_id":"at-nope"}]}`, 204, "")
	giveBack(`{"revoke_key":true}`, 400, "idempotency_key")
	giveBack(`{"claims":[{"rollout_id":"x"}]}`, 422, `"loc":["body","claims",0,"attempt_id"],"msg":"Field required"`)
	giveBack(``, 422, "Field required")
	if got := dequeue(t, api); len(got) != 1 {
		t.Errorf("the rollout is gone")
	}
}

// brokenWriter is a connection that breaks when its answer is written, after during has run.
type brokenWriter struct {
	http.ResponseWriter

	during func()
}

func (w brokenWriter) Write([]byte) (int, error) {
	w.during()
	return 0, errors.New("broken pipe")
}

// A claim whose answer is lost stays with the repeat of the request that has got it meanwhile.
func TestUnsentClaimOfRepeatedDequeue(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	api := newServer(t, server.Config{Store: engine})
	ids := enqueue(t, engine, "1")
	const header, key = "Idempotency-Key", "k"
	first := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/agl/queues/rollouts/dequeue", http.NoBody)
	first.Header.Set(header, key)
	var repeat []agl.AttemptedRollout
	api.ServeHTTP(brokenWriter{httptest.NewRecorder(), func() { repeat = dequeue(t, api, header, key) }}, first)
	if len(repeat) != 1 || repeat[0].RolloutID != ids[0] {
		t.Fatalf("the repeat got %+v, want %s", repeat, ids[0])
	}
	now, err := engine.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: ids[0]})
	if err != nil || now.Attempt == nil || now.Attempt.AttemptID != repeat[0].Attempt.AttemptID || now.Status != agl.RolloutPreparing {
		t.Errorf("got %+v, %v, want the claim of the repeat", now, err)
	}
}

// returningStore blocks the return of claims.
type returningStore struct {
	agl.Store

	returning, proceed chan struct{}
}

func (s returningStore) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	close(s.returning)
	<-s.proceed
	return s.Store.ReturnClaims(ctx, p)
}

// A repeat that arrives while the claim of the first request is being taken back gets a new one.
func TestRepeatDuringReturnOfClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := returningStore{memorytest.Open(t), make(chan struct{}), make(chan struct{})}
		api := newServer(t, server.Config{Store: store})
		ids := enqueue(t, store, "1")
		first := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/agl/queues/rollouts/dequeue", http.NoBody)
		first.Header.Set("Idempotency-Key", "k")
		go api.ServeHTTP(failingWriter{httptest.NewRecorder()}, first)
		<-store.returning
		got := make(chan []agl.AttemptedRollout, 1)
		go func() { got <- dequeue(t, api, "Idempotency-Key", "k") }()
		synctest.Wait()
		close(store.proceed)
		claimed := <-got
		synctest.Wait()
		now, err := store.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: ids[0]})
		if err != nil || len(claimed) != 1 || now.Attempt == nil || now.Attempt.AttemptID != claimed[0].Attempt.AttemptID {
			t.Errorf("the repeat got %+v, the rollout is %+v, %v", claimed, now, err)
		}
	})
}
