package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Every route declares its scopes and keeps to them: with each single scope, without a
// key, and with a revoked one. One that declares nothing is closed even to the root.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	ui := http.NotFoundHandler()
	for name, page := range map[string]http.Handler{"with a page": ui, "without": nil} {
		api, err := New(Config{Store: store, Token: "s3cret", Keys: keys, UI: page})
		if err != nil {
			t.Fatal(err)
		}
		const forgotten = "/v1/agl/forgotten"
		api.route(forgotten, methods{http.MethodGet: {}})
		for _, m := range api.routes { // what is behind the routes does not matter, only who gets there
			for method, to := range m {
				m[method] = endpoint{to.scope, func(x *exchange) error { return x.answerText(http.StatusOK, `"reached"`) }}
			}
		}
		callers := map[string]access.Scope{"": 0, "s3cret": access.Any}
		for i := range 7 {
			scope := access.Scope(1 << i)
			p := access.NewKey{Name: scope.String(), Scopes: scope}
			if scope == access.Agent {
				p.Attempt = agl.Some(agl.Claim{RolloutID: "r", AttemptID: "a"})
			}
			created, err := keys.Create(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			callers[created.Text] = scope
			if scope == access.Admin {
				gone, err := keys.Create(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := keys.Revoke(t.Context(), gone.ID, "test"); err != nil {
					t.Fatal(err)
				}
				callers[gone.Text] = 0
			}
		}
		walked := 0
		for path, m := range api.routes {
			for method, to := range m {
				if (to.scope == 0) != (path == forgotten) {
					t.Errorf("%s: %s %s declares the scopes (%s)", name, method, path, to.scope)
				}
				for key, has := range callers {
					want := http.StatusOK
					switch caller := (access.Caller{Scopes: has}); {
					case to.scope&access.Public != 0:
					case has == 0:
						want = http.StatusUnauthorized
					case caller.Allow(to.scope) != nil:
						want = http.StatusForbidden
					}
					r := httptest.NewRequestWithContext(t.Context(), method, strings.NewReplacer("{$}", "", "{", "", "}", "").Replace(path), strings.NewReader("{"))
					r.Header.Set("Authorization", "Bearer "+key)
					w := httptest.NewRecorder()
					api.ServeHTTP(w, r)
					if reached := w.Body.String() == `"reached"`; w.Code != want || reached != (want == http.StatusOK) {
						t.Errorf("%s: %s %s with (%s): %d %s, want %d", name, method, path, has, w.Code, w.Body, want)
					}
					walked++
				}
			}
		}
		if walked < 400 {
			t.Errorf("%s: only %d requests were made", name, walked)
		}
	}
}

// A stream of events ends when the key of who reads it is revoked or expires, and says why.
func TestEventsEndWithTheKey(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *access.Keys, string){
		"revoked": func(t *testing.T, keys *access.Keys, id string) {
			t.Helper()
			if _, err := keys.Revoke(t.Context(), id, "test"); err != nil {
				t.Fatal(err)
			}
		},
		"expired": func(*testing.T, *access.Keys, string) { time.Sleep(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memorytest.Open(t)
				keys := access.NewKeys(store)
				api, err := New(Config{Store: store, Token: "s3cret", Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				created, err := keys.Create(t.Context(), access.NewKey{Name: "reader", Scopes: access.Read, Expire: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/agl/events", nil)
				r.Header.Set("Authorization", "Bearer "+created.Text)
				w, ended := httptest.NewRecorder(), make(chan struct{})
				go func() {
					defer close(ended)
					api.ServeHTTP(w, r)
				}()
				time.Sleep(10 * time.Minute)
				select {
				case <-ended:
					t.Fatalf("the stream has ended before its key: %s", w.Body)
				default:
				}
				lose(t, keys, created.ID)
				time.Sleep(2 * time.Second)
				select {
				case <-ended:
				default:
					t.Fatal("the stream goes on without a key")
				}
				if !strings.Contains(w.Body.String(), "event: error\ndata: ") {
					t.Errorf("got %q", w.Body)
				}
			})
		})
	}
}
