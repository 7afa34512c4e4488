package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/store/memory/memorytest"
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
				refuse(w, http.StatusUnauthorized, "gone", "")
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
