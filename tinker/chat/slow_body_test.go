package chat

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/iotest"
)

// A request whose body does not arrive before the server's deadline is answered
// with 408.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", iotest.ErrReader(os.ErrDeadlineExceeded))
	newTestServer(t, &script{}).ServeHTTP(w, r)
	if w.Code != http.StatusRequestTimeout {
		t.Errorf("got %d %s, want 408", w.Code, w.Body)
	}
}
