package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
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
