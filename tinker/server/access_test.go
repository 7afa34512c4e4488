package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker/wire"
)

// Every route declares its scopes and keeps to them, with each single scope and without a key.
// One that declares nothing is closed even to the server's own key.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	s := newServer(t, Config{APIKey: "s3cret", Access: keys})
	s.handle(http.MethodGet, "/forgotten", 0, func(w http.ResponseWriter, _ *http.Request) { s.answer(w, nil, nil) })
	callers := map[string]access.Scope{"": 0, "s3cret": access.Any, "agl_aaaaaaaaaaaa_unknown": 0}
	for i := range 7 {
		p := access.NewKey{Name: "key", Scopes: access.Scope(1 << i)}
		if p.Scopes == access.Agent {
			p.Attempt = agl.Some(agl.Claim{RolloutID: "id", AttemptID: "a"})
		}
		created, err := keys.Create(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		callers[created.Text] = p.Scopes
	}
	walked := 0
	for pattern, scope := range s.scopes {
		method, path, _ := strings.Cut(pattern, " ")
		if (scope == 0) != strings.HasSuffix(path, "/forgotten") {
			t.Errorf("%s declares the scopes (%s)", pattern, scope)
		}
		if trains := strings.Contains(path, "optim_step") || strings.Contains(path, "forward") || method == http.MethodDelete; trains && scope != access.Train {
			t.Errorf("%s may be used with (%s)", pattern, scope)
		}
		at := strings.NewReplacer("{", "", "}", "").Replace(path)
		for key, has := range callers {
			for _, header := range []string{"X-Api-Key", "Authorization"} {
				r := httptest.NewRequestWithContext(t.Context(), method, at, strings.NewReader("not JSON"))
				given := key
				if header == "Authorization" {
					given = "Bearer " + key
				}
				r.Header.Set(header, given)
				want := 0 // let in, whatever came of it
				switch caller := (access.Caller{Scopes: has}); {
				case scope&access.Public != 0:
				case scope == 0:
					want = http.StatusForbidden
				case has == 0:
					want = http.StatusUnauthorized
				case caller.Allow(scope) != nil:
					want = http.StatusForbidden
				}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				got := w.Code
				if got != http.StatusUnauthorized && got != http.StatusForbidden {
					got = 0
				}
				if got != want {
					t.Errorf("%s with (%s) in %s: %d %s, want %d", pattern, has, header, w.Code, w.Body, want)
				}
				walked++
			}
		}
	}
	if walked < 20*2*10 {
		t.Errorf("only %d requests were made", walked)
	}
}

// A key with a budget is refused, because this server counts nothing; without a checker, a key
// is no more than a wrong one.
func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	limited, err := keys.Create(t.Context(), access.NewKey{Name: "intern", Scopes: access.Train, Limits: access.Limits{MaxTokens: 10}})
	if err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[int]Config{http.StatusForbidden: {Access: keys}, http.StatusUnauthorized: {APIKey: "s3cret"}} {
		got := call(t, newServer(t, cfg), "POST", "/create_session", `{}`, want, "X-Api-Key", limited.Text)
		if want == http.StatusForbidden && !strings.Contains(got["detail"].(string), "has a budget, a list of models or a rate, which this server does not count") {
			t.Errorf("got %v", got)
		}
	}
	call(t, newServer(t, Config{Access: keys}), "POST", "/create_session", `{}`, http.StatusUnauthorized)
}

// The calls of a project's budget would not be counted here, whoever makes them. What a store counts
// by itself concerns no server of models.
func TestProjectsWithBudgets(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		project access.Limits
		status  int
	}{
		"none": {access.Limits{}, 200}, "of the store": {access.Limits{MaxRollouts: 1, MaxBytes: 1}, 200},
		"tokens": {access.Limits{MaxTokens: 10}, 403}, "dollars": {access.Limits{MaxUSD: 1}, 403}, "calls at once": {access.Limits{MaxCalls: 2}, 403},
	} {
		keys := access.NewProjectKeys(memorytest.Open(t), access.NewProjectLimits(func(context.Context) (access.Limits, error) { return tc.project, nil }))
		key, err := keys.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
		if err != nil {
			t.Fatal(err)
		}
		got := call(t, newServer(t, Config{Access: keys}), "POST", "/create_session", `{}`, tc.status, "X-Api-Key", key.Text)
		if detail, _ := got["detail"].(string); (tc.status == http.StatusForbidden) != strings.Contains(detail, "the project has a budget of tokens, dollars or calls, which this server does not count") {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A revoked key is refused within a second, also by a server that has just asked the store.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		here, there := access.NewKeys(store), access.NewKeys(store)
		key, err := here.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(t, Config{Access: access.NewCache(there.Check, access.AskTTL)})
		for range 20 { // both have asked at other times
			call(t, s, "POST", "/create_session", `{}`, http.StatusOK, "X-Api-Key", key.Text)
			time.Sleep(17 * time.Millisecond)
		}
		if _, err := here.Revoke(t.Context(), key.ID, "test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		call(t, s, "POST", "/create_session", `{}`, http.StatusUnauthorized, "X-Api-Key", key.Text)
	})
}

// Who sends many wrong keys must wait, even when the next one is right; valid keys of a store pass.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	valid, err := keys.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{APIKey: "s3cret", Access: keys, Failed: access.NewThrottle(3)})
	for _, wrong := range []string{"guess", "agl_aaaaaaaaaaaa_guess", "guess"} {
		call(t, s, "POST", "/create_session", `{}`, http.StatusUnauthorized, "X-Api-Key", wrong)
	}
	call(t, s, "POST", "/create_session", `{}`, http.StatusTooManyRequests, "X-Api-Key", "s3cret")
	call(t, s, "POST", "/create_session", `{}`, http.StatusTooManyRequests, "X-Api-Key", "agl_aaaaaaaaaaaa_guess")
	call(t, s, "POST", "/create_session", `{}`, http.StatusOK, "X-Api-Key", valid.Text)
}

// A caller has so many requests at once, and not more; a key of a store counts for itself.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	valid, err := keys.Create(t.Context(), access.NewKey{Name: "trainer", Scopes: access.Train})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{APIKey: "s3cret", Access: keys})
	for range access.MaxOpen { // as many as other requests of the key would
		if _, err := s.requests.Enter("key " + valid.ID); err != nil {
			t.Fatal(err)
		}
	}
	call(t, s, "POST", "/create_session", `{}`, http.StatusTooManyRequests, "X-Api-Key", valid.Text)
	call(t, s, "POST", "/create_session", `{}`, http.StatusOK, "X-Api-Key", "s3cret")
}

// What a key of the store does to models and weights is told, and by whom: not what was refused, nor
// steps of training, nor what the server's own key does.
func TestAudit(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	var acts told
	s := newServer(t, Config{APIKey: "s3cret", Access: keys, Audit: &acts})
	create := func(scope access.Scope) string {
		key, err := keys.Create(t.Context(), access.NewKey{Name: "key", Scopes: scope})
		if err != nil {
			t.Fatal(err)
		}
		return key.Text
	}
	train, runner := create(access.Train), create(access.Runner)
	session := call(t, s, "POST", wire.CreateSession, `{"tags":[],"sdk_version":"0.24.1","type":"create_session"}`, 200, wire.KeyHeader, train)["session_id"].(string)
	model := fmt.Sprintf(`{"session_id":%q,"model_seq_id":0,"base_model":"agl-policy","lora_config":{"rank":8,"seed":1}}`, session)
	made := call(t, s, "POST", wire.CreateModel, model, 200, wire.KeyHeader, train)
	call(t, s, "POST", wire.CreateModel, model, 200, wire.KeyHeader, "s3cret") // the same request again
	call(t, s, "POST", wire.CreateModel, model, 403, wire.KeyHeader, runner)
	call(t, s, "POST", wire.CreateModel, `{"session_id":"none","model_seq_id":0,"base_model":"agl-policy","lora_config":{"rank":8}}`, 404, wire.KeyHeader, train)
	id := call(t, s, "POST", wire.RetrieveFuture, fmt.Sprintf(`{"request_id":%q}`, made["request_id"]), 200, wire.KeyHeader, train)["model_id"].(string)
	call(t, s, "POST", wire.OptimStep, step(id, 1, 0.1), 200, wire.KeyHeader, train)
	call(t, s, "POST", wire.UnloadModel, fmt.Sprintf(`{"model_id":%q}`, id), 200, wire.KeyHeader, train)
	want := told{train + " POST " + wire.Prefix + wire.CreateModel, train + " POST " + wire.Prefix + wire.UnloadModel}
	if !slices.Equal(acts, want) {
		t.Errorf("told %q, want %q", acts, want)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// told are keys and what was done with them.
type told []string

func (l *told) RecordAct(_ context.Context, key string, act access.Act) error {
	*l = append(*l, key+" "+act.Method+" "+act.Path)
	return nil
}
