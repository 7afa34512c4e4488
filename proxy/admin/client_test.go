package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/admin"
)

// TestRedirect: a redirect from http to https makes a GET of a request, which GET /admin/models would answer as if the models had been set.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var handled []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, moved := strings.CutPrefix(r.URL.Path, "/moved"); moved {
			http.Redirect(w, r, path, http.StatusMovedPermanently)
			return
		}
		handled = append(handled, r.Method)
	}))
	defer server.Close()
	c := admin.Client{BaseURL: server.URL + "/moved"}
	err := c.SetModels(t.Context(), nil)
	if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), `(301) to "/admin/models"`) {
		t.Errorf("error %v", err)
	}
	c.BaseURL = server.URL
	if err := c.SetModels(t.Context(), nil); err != nil || len(handled) != 1 || handled[0] != http.MethodPut {
		t.Errorf("handled %q, error %v", handled, err)
	}
}
