package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker/chat"
)

// A web page can make a server of models do nothing: not one of another site, and not one whose name
// was made to point to a server that asks for no key.
func TestServersOfModelsAreForPrograms(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		handler, err := ofPrograms(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), keyed)
		if err != nil {
			t.Fatal(err)
		}
		named := http.StatusForbidden
		if keyed {
			named = http.StatusNoContent // the page has no key
		}
		for _, tc := range []struct {
			what, host, origin, site string
			status                   int
		}{
			{"a program", "127.0.0.1:1", "", "", 204},
			{"a program by a name", "models.internal:1", "", "", 204},
			{"a page of another site", "127.0.0.1:1", "https://evil.example", "cross-site", 403},
			{"a page of this machine", "localhost:1", "http://localhost:1", "same-origin", 204},
			{"a page by a name", "evil.example:1", "http://evil.example:1", "same-origin", named},
			{"a page by a name, an old browser", "evil.example:1", "http://evil.example:1", "", named},
			{"an address that somebody typed", "models.internal:1", "", "none", 204},
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			r.Host = tc.host
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			if tc.site != "" {
				r.Header.Set("Sec-Fetch-Site", tc.site)
			}
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != tc.status {
				t.Errorf("%s, with keys %t: %d %s, want %d", tc.what, keyed, w.Code, w.Body, tc.status)
			}
		}
	}
}

// A server of models whose --store names another kind of server says so when it starts.
func TestAddressWithoutStoreIsTold(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	store, err := client.New(client.Config{URL: other.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	var said strings.Builder
	if err := askStore(t.Context(), store, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "level=ERROR") || !strings.Contains(said.String(), "records of calls are lost") {
		t.Errorf("the log says %q", said.String())
	}
}

// Every route of a server of models under /v1, as agl serve and agl policy serve have it, keeps to its
// scopes: with each single scope, without a key and with one that is unknown.
func TestEveryRouteHasItsScope(t *testing.T) {
	t.Parallel()
	tokenizer, err := chat.NewCharacters("abc ")
	if err != nil {
		t.Fatal(err)
	}
	chats, err := chat.NewServer(chat.Config{Tokenizer: tokenizer, Renderer: chat.NewRoleMarks(tokenizer)})
	if err != nil {
		t.Fatal(err)
	}
	keys := access.NewKeys(memorytest.Open(t))
	handler := guard(access.Guard{Key: "s3cret", Keys: keys}, chats)
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
	scopes := map[string]access.Scope{
		"POST /v1/chat/completions": access.Live | access.Runner | access.Train, "GET /v1/models": access.Live | access.Readers, "GET /v1/models/{name...}": access.Live | access.Readers,
	}
	for _, route := range chats.Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/v1/") {
			continue // such paths are not served beside others
		}
		scope, known := scopes[route]
		delete(scopes, route)
		if !known {
			t.Errorf("%s has no scope here", route)
		}
		for key, has := range callers {
			want := 0 // let in, whatever comes of it
			switch caller := (access.Caller{Scopes: has}); {
			case has == 0:
				want = http.StatusUnauthorized
			case caller.Allow(scope) != nil:
				want = http.StatusForbidden
			}
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader("{"))
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			got := w.Code
			if got != http.StatusUnauthorized && got != http.StatusForbidden {
				got = 0
			}
			if got != want {
				t.Errorf("%s with (%s): %d %s, want %d", route, has, w.Code, w.Body, want)
			}
		}
	}
	if len(scopes) > 0 {
		t.Errorf("these are not served: %v", scopes)
	}
}

// A chat ends when its key is revoked, and not before; the operator's key has no end.
func TestRunningChatsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		key, err := keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live})
		if err != nil {
			t.Fatal(err)
		}
		handler := guard(access.Guard{Key: "own", Keys: keys}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				refuse(w, openai.NewError(http.StatusUnauthorized, openai.AuthenticationError, "gone", ""))
			case <-time.After(time.Minute):
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		revoked := time.Now().Add(10 * time.Second)
		time.AfterFunc(10*time.Second, func() {
			if _, err := keys.Revoke(t.Context(), key.ID, "root"); err != nil {
				t.Error(err)
			}
		})
		for _, tc := range []struct {
			key    string
			status int
			within time.Duration
		}{{key.Text, http.StatusUnauthorized, time.Second}, {"own", http.StatusNoContent, time.Minute}} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			r.Header.Set("Authorization", "Bearer "+tc.key)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if took := time.Since(revoked); w.Code != tc.status || took < 0 || took > tc.within+time.Second {
				t.Errorf("%d after %v, want %d within %v", w.Code, took, tc.status, tc.within)
			}
		}
	})
}
