package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
)

// TestRedirect: a redirect that turns a POST into a GET is an error which names its target, and no failure that is retried.
func TestRedirect(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(server.Config{Service: engine})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	web := httptest.NewServer(handler)
	defer web.Close()
	for status, want := range map[int]error{http.StatusMovedPermanently: agl.ErrInvalid, http.StatusPermanentRedirect: nil} {
		before := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, web.URL+r.URL.Path, status)
		}))
		defer before.Close()
		c, err := client.New(client.Config{URL: before.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.CreateModel(t.Context(), tinker.CreateModelParams{})
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), `redirects POST requests (301) to "`+web.URL) {
			t.Errorf("%d: %v", status, err)
		}
	}
}
