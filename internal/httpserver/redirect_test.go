package httpserver_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
)

func TestKeysStayAtTheirHost(t *testing.T) {
	t.Parallel()
	var asked int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	target := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target, http.StatusTemporaryRedirect)
	}))
	defer web.Close()
	client := httpserver.ByMethod(http.DefaultClient)
	for i, key := range []string{"", "secret"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("X-Api-Key", key)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		refused := httpserver.Redirected(req, res, "the engine")
		if asked != 1 || strings.Contains(refused, target) != (i == 1) {
			t.Errorf("key %q: %q, and the other host was asked %d times", key, refused, asked)
		}
	}
}
