package access_test

import (
	"context"
	"errors"
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
	"github.com/agl-go/agl/store/memory/memorytest"
)

func create(t *testing.T, keys *access.Keys, p access.NewKey) access.CreatedKey {
	t.Helper()
	created, err := keys.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func refused(t *testing.T, keys access.Checker, what, key string) {
	t.Helper()
	if caller, err := keys.Check(t.Context(), key); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("%s: got %+v, %v, want %s", what, caller, err, agl.CodeUnauthorized)
	}
}

// Whoever has a key learns what has ended it; whoever only knows its id does not.
func TestEndedKeysSayWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		old := create(t, keys, access.NewKey{Name: "old", Scopes: access.Read, Expire: time.Hour})
		revoked := create(t, keys, access.NewKey{Name: "revoked", Scopes: access.Read})
		if _, err := keys.Revoke(t.Context(), revoked.ID, "root"); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Check(t.Context(), old.Text); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		for key, want := range map[string]string{
			old.Text:           "the key " + old.ID + " is expired",
			revoked.Text:       "the key " + revoked.ID + " is revoked",
			old.Text + "a":     "the key " + old.ID + " is unknown, expired or revoked",
			revoked.Text + "a": "the key " + revoked.ID + " is unknown, expired or revoked",
			"agl_no":           "the key is not one that agl key create makes",
		} {
			if _, err := keys.Check(t.Context(), key); agl.ErrorCode(err) != agl.CodeUnauthorized || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	attempt := agl.Claim{RolloutID: "ro-1", AttemptID: "at-1"}
	reader := create(t, keys, access.NewKey{Name: "reader", Scopes: access.Read | access.Ingest, By: "root"})
	agent := create(t, keys, access.NewKey{Name: "agent", Scopes: access.Agent, Attempt: agl.Some(attempt)})

	caller, err := keys.Check(t.Context(), reader.Text)
	if err != nil || caller.KeyID != reader.ID || caller.Name != "reader" || caller.Scopes != access.Read|access.Ingest || !caller.MayActFor(attempt) {
		t.Errorf("got %+v, %v", caller, err)
	}
	caller, err = keys.Check(t.Context(), agent.Text)
	if err != nil || !caller.MayActFor(attempt) || caller.MayActFor(agl.Claim{RolloutID: "ro-1", AttemptID: "at-2"}) {
		t.Errorf("got %+v, %v", caller, err)
	}
	secret := reader.Text[strings.LastIndex(reader.Text, "_")+1:]
	for what, key := range map[string]string{
		"no key": "", "another secret": reader.Text[:len(reader.Text)-1] + "!", "less": reader.Text[:len(reader.Text)-1], "more": reader.Text + "a",
		"another's secret": strings.TrimSuffix(agent.Text, agent.Text[strings.LastIndex(agent.Text, "_")+1:]) + secret,
		"no secret":        "agl_" + reader.ID + "_", "the secret alone": secret, "an unknown id": "agl_aaaaaaaaaaaa_" + secret, "upper case": strings.ToUpper(reader.Text),
	} {
		refused(t, keys, what, key)
	}
	// What the database holds does not make a key.
	document, err := store.GetDocument(t.Context(), "key", reader.ID)
	if err != nil || strings.Contains(string(document.Body), secret) {
		t.Errorf("the document is %s, %v", document.Body, err)
	}
	list, err := keys.List(t.Context())
	if err != nil || len(list) != 2 || list[0].State(time.Now()) != access.StateValid {
		t.Errorf("got %+v, %v", list, err)
	}
	for range 2 { // again changes nothing
		revoked, err := keys.Revoke(t.Context(), reader.ID, "someone")
		if err != nil || revoked.State(time.Now()) != access.StateRevoked || revoked.RevokedBy != "someone" {
			t.Errorf("got %+v, %v", revoked, err)
		}
	}
	refused(t, keys, "a revoked key, at once", reader.Text)
	if _, err := keys.Revoke(t.Context(), "nobody", "someone"); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
}

func TestNewKeyIsChecked(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	attempt := agl.Some(agl.Claim{RolloutID: "r", AttemptID: "a"})
	for field, p := range map[string]access.NewKey{
		"name": {Scopes: access.Read}, "scopes": {Name: "x"}, "expire_seconds": {Name: "x", Scopes: access.Read, Expire: -1},
		"scopes:":                        {Name: "x", Scopes: access.Agent | access.Read, Attempt: attempt},
		"rollout_id":                     {Name: "x", Scopes: access.Agent},
		"attempt_id":                     {Name: "x", Scopes: access.Read, Attempt: attempt},
		"rollout_id and attempt_id":      {Name: "x", Scopes: access.Agent, Attempt: agl.Some(agl.Claim{RolloutID: "r"})},
		"must be one or more of read, i": {Name: "x", Scopes: access.Public},
	} {
		if _, err := keys.Create(t.Context(), p); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := access.ParseScopes([]string{"read", "write"}); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), `"write"`) {
		t.Error(err)
	}
}

// A key ends on time, although servers remember what they were told, and a revoked one
// within a second: at a server on the same database, and at one that asks that server.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		here, there := access.NewKeys(store), access.NewKeys(store)
		asking := access.NewCache(there.Check, access.AskTTL)
		short := create(t, here, access.NewKey{Name: "short", Scopes: access.Read, Expire: 100 * time.Millisecond})
		long := create(t, here, access.NewKey{Name: "long", Scopes: access.Read})
		// The answers of both are as fresh as they can be when the key is revoked.
		if _, err := there.Check(t.Context(), long.Text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(access.StoreTTL - time.Millisecond)
		for _, key := range []string{short.Text, long.Text} {
			_, err := asking.Check(t.Context(), key)
			if expired := key == short.Text; expired == (err == nil) {
				t.Errorf("expired is %t: %v", expired, err)
			}
		}
		if _, err := here.Revoke(t.Context(), long.ID, "root"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		refused(t, there, "on the same database", long.Text)
		refused(t, asking, "at a server that asks", long.Text)
	})
}

// Concurrent checks ask once, and go on when the one that asks is cancelled. A failure to
// ask is not remembered.
func TestCacheAsksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		var fail atomic.Bool
		cache := access.NewCache(func(ctx context.Context, _ string) (access.Caller, error) {
			asked.Add(1)
			time.Sleep(time.Millisecond)
			if ctx.Err() != nil || fail.Load() {
				return access.Caller{}, agl.Errorf(agl.CodeUnavailable, "down")
			}
			return access.Caller{KeyID: "x"}, nil
		}, time.Minute)
		const key = "agl_aaaaaaaaaaaa_secret"
		check := func(ctx context.Context) error {
			_, err := cache.Check(ctx, key)
			return err
		}
		fail.Store(true)
		if err := check(t.Context()); agl.ErrorCode(err) != agl.CodeUnavailable {
			t.Errorf("while it is down: %v", err)
		}
		fail.Store(false)
		cancelled, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = check(cancelled) })
		synctest.Wait()
		cancel()
		for range 100 {
			all.Go(func() {
				if err := check(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := asked.Load(); got != 2 {
			t.Errorf("asked %d times, want 2: once while it was down, and once for all", got)
		}
	})
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		has, route access.Scope
		allowed    bool
	}{
		{access.Any, 0, false}, {0, access.Public, true}, {0, access.Any, false}, {access.Admin, access.Ingest, true},
		{access.Read, access.Readers, true}, {access.Ingest, access.Readers, false}, {access.Train, access.Admin, false}, {access.Agent, access.Callers, true},
	} {
		caller := access.Caller{Scopes: tc.has}
		if err := caller.Allow(tc.route); (err == nil) != tc.allowed {
			t.Errorf("(%s) at (%s): %v", tc.has, tc.route, err)
		}
	}
}

func TestGiven(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ header, value, want string }{
		{"Authorization", "Bearer k", "k"}, {"X-Api-Key", "k", "k"}, {"Authorization", "Basic YWdsOms=", "k"}, {"Authorization", "k", ""}, {"Cookie", "k", ""},
		{"Authorization", "bearer k", "k"}, {"Authorization", "BEARER  k", "k"}, {"Authorization", "bAsIc YWdsOms=", "k"}, {"Authorization", "Basic YWdsOg==", ""},
		{"Authorization", "Basic k", ""}, {"Authorization", "Basic YWds", ""}, {"Authorization", "Digest k", ""}, {"Authorization", "Bearer", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set(tc.header, tc.value)
		if got := access.Given(r); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", tc.header, tc.value, got, tc.want)
		}
	}
}
