package httpserver_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	guarded, err := httpserver.NewGuard([]string{"https://app.example"}, []string{"Store.internal"})
	if err != nil {
		t.Fatal(err)
	}
	open, err := httpserver.NewGuard([]string{"*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, method, host string
		header             map[string]string
		refused            bool // by the guard with names; the open one refuses nothing
	}{
		{"a program", "POST", "127.0.0.1:4747", nil, false},
		{"a program with the name", "POST", "store.internal:4747", nil, false},
		{"another case, a last dot", "POST", "STORE.internal.:4747", nil, false},
		{"IPv6", "POST", "[::1]:4747", nil, false},
		{"IPv6 without a port", "POST", "[::1]", nil, false},
		{"localhost", "POST", "localhost:4747", nil, false},
		{"HTTP/1.0", "GET", "", nil, false},
		{"rebinding", "GET", "evil.example:4747", nil, true},
		{"rebinding to a write", "POST", "evil.example:4747", map[string]string{"Sec-Fetch-Site": "same-origin"}, true},
		{"a name that begins alike", "GET", "localhost.evil.example", nil, true},
		{"a page of this server", "POST", "127.0.0.1:4747", map[string]string{"Sec-Fetch-Site": "same-origin"}, false},
		{"a page of this server, an old browser", "POST", "127.0.0.1:4747", map[string]string{"Origin": "http://127.0.0.1:4747"}, false},
		{"a link", "GET", "127.0.0.1:4747", map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
		{"a page of another site", "POST", "127.0.0.1:4747", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, true},
		{"an old browser", "POST", "127.0.0.1:4747", map[string]string{"Origin": "https://evil.example"}, true},
		{"a sandboxed frame", "DELETE", "127.0.0.1:4747", map[string]string{"Origin": "null"}, true},
		{"another port of this machine", "POST", "127.0.0.1:4747", map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8080"}, true},
		{"a page that may", "POST", "127.0.0.1:4747", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example"}, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/", nil)
		r.Host = tc.host
		for name, value := range tc.header {
			r.Header.Set(name, value)
		}
		if err := guarded.Check(r); (err != nil) != tc.refused {
			t.Errorf("%s: %v, want refused %t", tc.what, err, tc.refused)
		}
		if err := open.Check(r); err != nil {
			t.Errorf("%s, open: %v", tc.what, err)
		}
	}
	behind := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil) // a proxy that does not pass Host on
	behind.Host = "127.0.0.1:4747"
	behind.Header.Set("Origin", "http://agl.example:8080")
	if err := guarded.Check(behind); err == nil || !strings.Contains(err.Error(), `"127.0.0.1:4747" (a proxy in front must pass it on)`) {
		t.Errorf("behind a proxy: %v, want the header Host in it", err)
	}
	for _, origin := range []string{"app.example", "https://app.example/path", "null"} {
		if _, err := httpserver.NewGuard([]string{origin}, nil); err == nil {
			t.Errorf("the origin %q is accepted", origin)
		}
	}
	if _, err := httpserver.NewGuard(nil, nil); err != nil {
		t.Error(err)
	}
}

// What a page sends must have a type that pages of other sites cannot send without being asked.
func TestGuardOfBodies(t *testing.T) {
	t.Parallel()
	open, err := httpserver.NewGuard([]string{"*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, err := httpserver.NewGuard(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for kind, allowed := range map[string]bool{
		"": false, "text/plain": false, "TEXT/plain;charset=UTF-8": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, ";": false,
		"application/json": true, "application/json; charset=utf-8": true, "application/x-protobuf": true, "application/vnd.api+json": true,
	} {
		for _, header := range []map[string]string{{"Origin": "http://127.0.0.1:4747"}, {"Sec-Fetch-Site": "same-origin"}} {
			for _, method := range []string{"POST", "PUT", "DELETE"} {
				r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:4747/", strings.NewReader("{}"))
				r.Header.Set("Content-Type", kind)
				if err := own.Check(r); err != nil {
					t.Errorf("%s of a program, %q: %v", method, kind, err)
				}
				for name, value := range header {
					r.Header.Set(name, value)
				}
				for _, guard := range []*httpserver.Guard{open, own} {
					if err := guard.Check(r); (err == nil) != allowed {
						t.Errorf("%s %q with %v: %v, want allowed %t", method, kind, header, err, allowed)
					}
				}
			}
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1:4747/", nil)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if err := own.Check(r); err != nil {
		t.Errorf("without a body: %v", err)
	}
}
