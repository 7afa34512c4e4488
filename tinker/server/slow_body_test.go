package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"

	"github.com/agl-go/agl/tinker/wire"
)

// A request whose body does not arrive before the server's deadline is answered
// with 408.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := newServer(t, Config{})
	defer s.Close()
	for _, path := range []string{wire.OptimStep, wire.ForwardBackward} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, wire.Prefix+path, iotest.ErrReader(os.ErrDeadlineExceeded)))
		if w.Code != http.StatusRequestTimeout {
			t.Errorf("%s: got %d %s, want 408", path, w.Code, w.Body)
		}
	}
}
