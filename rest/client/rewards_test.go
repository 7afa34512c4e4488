package client_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// A key that may only send takes a reward to a finished rollout, once.
func TestAddReward(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	handler, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(handler)
	t.Cleanup(api.Close)
	key, err := keys.Create(t.Context(), access.NewKey{Name: "app", Scopes: access.Ingest})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: api.URL, Token: key.Text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	succeeded := agl.AttemptSucceeded
	if _, err := store.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &succeeded}); err != nil {
		t.Fatal(err)
	}

	p := agl.AddRewardParams{
		RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "kept", Value: 0.93}, {Name: "speed", Value: 1}},
		Source: agl.RewardFromEvent, Message: "kept 93 %", Time: agl.Some(agl.Timestamp(1.5e9)), IdempotencyKey: "edit-7",
	}
	first, err := c.AddReward(t.Context(), p)
	if err != nil || first.SequenceID != 1 || first.AttemptID != r.Attempt.AttemptID {
		t.Fatalf("got %+v, %v", first, err)
	}
	if again, err := c.AddReward(t.Context(), p); err != nil || again != first {
		t.Errorf("repeated: got %+v, %v, want %+v", again, err, first)
	}
	p.Message = "kept 94 %"
	if _, err := c.AddReward(t.Context(), p); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("another reward with the key: got %v, want a conflict", err)
	}
	page, err := store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
	if err != nil || page.Total != 1 || page.Items[0].EndTime != p.Time {
		t.Fatalf("got %+v, %v, want one span at %v", page, err, p.Time.V)
	}
	if rewards, err := adapter.Rewards(&page.Items[0]); err != nil || len(rewards) != 2 || rewards[0] != p.Rewards[0] || rewards[1] != p.Rewards[1] {
		t.Errorf("got %v, %v, want %v", rewards, err, p.Rewards)
	}

	// The bodies that other programs send.
	for body, want := range map[string]string{
		`{"value":0.7}`: `"sequence_id":`,
		`{"value":-1,"call":null,"span":null,"source":"accept","idempotency_key":"x"}`: `"sequence_id":`,
		`{"dimensions":{"accepted":true,"edited":false}}`:                              `"sequence_id":`,
		`{}`:                                    "value and dimensions: got both or neither",
		`{"value":1,"dimensions":{"a":1}}`:      "value and dimensions: got both or neither",
		`{"value":"1"}`:                         "value: got \\\"1\\\", must be a finite number, true or false",
		`{"dimensions":[1]}`:                    "dimensions: got [1], must be an object of numbers, true or false, the primary one first",
		`{"dimensions":{}}`:                     "reward: no dimension given",
		`{"value":1,"calls":"x"}`:               "allowed: value, dimensions, call, span, turn",
		`{"value":1,"call":"x","span":"y"}`:     "must be one of them, or none",
		`{"value":1,"span":"0011223344556677"}`: "has no span",
		`{"value":1,"span":"0","turn":"y"}`:     "must be one of them, or none",
		`{"value":1,"turn":"t-1"}`:              "no model call of a turn",
		`{"value":1,"call":"chatcmpl-x"}`:       "no model call whose reply has the id",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+"/v1/agl/rollouts/"+r.RolloutID+"/rewards", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key.Text)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !strings.Contains(string(text), want) || (answer.StatusCode == http.StatusOK) != strings.Contains(want, "sequence_id") {
			t.Errorf("%s: %d %s, want %s", body, answer.StatusCode, text, want)
		}
	}
}
