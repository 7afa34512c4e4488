package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Every route declares its scopes and keeps to them, with each single scope and without
// a key. One that declares nothing is closed even to the server's own key.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	keys := access.NewKeys(store)
	g, err := New(Config{Store: store, Key: "s3cret", Access: keys, Translate: true})
	if err != nil {
		t.Fatal(err)
	}
	const forgotten = "/api/forgotten"
	g.route(forgotten, methods{http.MethodGet: {}})
	for _, m := range g.routes { // what is behind the routes does not matter, only who gets there
		for method, to := range m {
			m[method] = endpoint{to.scope, func(w http.ResponseWriter, _ *http.Request) error { writeJSON(w, http.StatusOK, nil); return nil }}
		}
	}
	callers := map[string]access.Scope{"": 0, "s3cret": access.Any, "agl_aaaaaaaaaaaa_unknown": 0}
	for i := range 7 {
		p := access.NewKey{Name: "key", Scopes: access.Scope(1 << i)}
		if p.Scopes == access.Agent {
			p.Attempt = agl.Some(agl.Claim{RolloutID: "id", AttemptID: "a"}) // the id in the paths below
		}
		created, err := keys.Create(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		callers[created.Text] = p.Scopes
	}
	walked := 0
	for path, m := range g.routes {
		for method, to := range m {
			if (to.scope == 0) != (path == forgotten) {
				t.Errorf("%s %s declares the scopes (%s)", method, path, to.scope)
			}
			at := strings.NewReplacer("...", "", "{", "", "}", "").Replace(path)
			for key, has := range callers {
				r := httptest.NewRequestWithContext(t.Context(), method, at, nil)
				r.Header.Set("X-Api-Key", key)
				// An agent is somebody only where its rollout is named.
				known := has != 0 && (has != access.Agent || agentsOwn(r) == "id")
				want := http.StatusOK
				switch caller := (access.Caller{Scopes: has}); {
				case to.scope&access.Public != 0:
				case !known:
					want = http.StatusUnauthorized
				case caller.Allow(to.scope) != nil:
					want = http.StatusForbidden
				}
				w := httptest.NewRecorder()
				if g.ServeHTTP(w, r); w.Code != want {
					t.Errorf("%s %s with (%s): %d %s, want %d", method, at, has, w.Code, w.Body, want)
				}
				walked++
			}
		}
	}
	if walked < 150 {
		t.Errorf("only %d requests were made", walked)
	}
}
