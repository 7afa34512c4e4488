package httpserver_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
)

// The address of a client behind trusted proxies is what the outermost of them has seen.
func TestForwarded(t *testing.T) {
	t.Parallel()
	web := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }),
		slog.New(slog.DiscardHandler), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	for _, tc := range []struct {
		from string
		list []string
		want string
	}{
		{"10.0.0.1:5", []string{"192.0.2.7"}, "192.0.2.7:0"},
		{"10.0.0.1:5", []string{"127.0.0.1, 192.0.2.7, 10.0.0.2"}, "192.0.2.7:0"}, // the first was written by the client
		{"10.0.0.1:5", []string{"127.0.0.1", "192.0.2.7"}, "192.0.2.7:0"},
		{"10.0.0.1:5", []string{"127.0.0.1, 192.0.2.7:40000, 10.0.0.2:443"}, "192.0.2.7:40000"}, // as Azure's Application Gateway does
		{"10.0.0.1:5", []string{"[2001:db8::1]:40000"}, "[2001:db8::1]:40000"},
		{"10.0.0.1:5", []string{"nonsense"}, "10.0.0.1:5"},
		{"10.0.0.1:5", nil, "10.0.0.1:5"},
		{"[fd00::1]:5", []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{"192.0.2.9:5", []string{"127.0.0.1"}, "192.0.2.9:5"}, // no proxy of ours
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = tc.from
		r.Header["X-Forwarded-For"] = tc.list
		w := httptest.NewRecorder()
		web.Handler.ServeHTTP(w, r)
		if got := w.Body.String(); got != tc.want {
			t.Errorf("%s for %q: got %s, want %s", tc.from, tc.list, got, tc.want)
		}
	}
}
