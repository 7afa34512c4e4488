package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A client waits over several requests for rollouts that become ready meanwhile.
func TestCollect(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	collector, err := collect.New(collect.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(server.Config{Store: store, Collector: collector})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(handler)
	t.Cleanup(api.Close)
	c, err := client.New(client.Config{URL: api.URL, LongPoll: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })

	end := func(metadata string) string {
		r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Mode: agl.ModeTrain, Metadata: jsontext.Value(metadata)}})
		if err != nil {
			t.Error(err)
			return ""
		}
		if _, err := agl.AddReward(t.Context(), store, agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 0.5}}}); err != nil {
			t.Error(err)
		}
		status := agl.AttemptSucceeded
		if _, err := store.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
			t.Error(err)
		}
		return r.RolloutID
	}
	filter := agl.CollectFilter{
		StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}, ModeIn: []string{"train", ""}, Metadata: map[string]string{"user": "a=b", "agl.kind": "x"},
	}
	empty, err := c.Collect(t.Context(), agl.CollectParams{Filter: filter})
	if err != nil || len(empty.Rollouts) != 0 || empty.Next == "" {
		t.Fatalf("got %+v, %v", empty, err)
	}
	done := make(chan string)
	go func() {
		end(`{"user":"other","agl.kind":"x"}`)
		done <- end(`{"user":"a=b","agl.kind":"x","n": 1.0}`)
	}()
	got, err := c.Collect(t.Context(), agl.CollectParams{Since: empty.Next, Min: 1, MaxWait: time.Hour, Filter: filter})
	id := <-done
	if err != nil || len(got.Rollouts) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	r := got.Rollouts[0]
	if r.Rollout.RolloutID != id || r.Reward != agl.Some(0.5) || r.Rewards != 1 || string(r.Rollout.Metadata) != `{"user":"a=b","agl.kind":"x","n": 1.0}` {
		t.Errorf("got %+v with %s", r, r.Rollout.Metadata)
	}
	if _, err := agl.AddReward(t.Context(), c, agl.AddRewardParams{RolloutID: id, Rewards: []agl.Reward{{Name: "primary", Value: 1}}}); err != nil {
		t.Fatal(err)
	}
	got, err = c.Collect(t.Context(), agl.CollectParams{Since: got.Next})
	if err != nil || len(got.Rollouts) != 0 || len(got.Corrections) != 1 || got.Corrections[0].Reward != agl.Some(1.0) || got.Corrections[0].Previous != agl.Some(0.5) {
		t.Errorf("a correction: got %+v, %v", got, err)
	}
	if _, err := c.Collect(t.Context(), agl.CollectParams{Since: "nonsense"}); agl.ErrorCode(err) != agl.CodeInvalid {
		t.Errorf("a wrong cursor: got %v", err)
	}
	misspelt, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/v1/agl/collect?mode=train", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(misspelt)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a misspelt filter: %s", answer.Status)
	}
	bare, err := server.New(server.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	without := httptest.NewServer(bare)
	t.Cleanup(without.Close)
	other, err := client.New(client.Config{URL: without.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	if _, err := other.Collect(t.Context(), agl.CollectParams{}); agl.ErrorCode(err) != agl.CodeUnimplemented {
		t.Errorf("a server without a collector: got %v", err)
	}
}
