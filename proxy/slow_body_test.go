package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"

	"github.com/agl-go/agl/proxy"
)

// A request whose body does not arrive before the server's deadline is answered
// with 408.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const token = "s3cret"
	p := unplugged(t, always, &spans{}, func(c *proxy.Config) { c.Token = token })
	for _, path := range []string{"/v1/chat/completions", "/admin/flush"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, iotest.ErrReader(os.ErrDeadlineExceeded))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != http.StatusRequestTimeout {
			t.Errorf("%s: got %d %s, want 408", path, w.Code, w.Body)
		}
	}
	closed(t, p)
}
