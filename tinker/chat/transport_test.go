package chat_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl/tinker/chat"
)

func TestTransport(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Host", r.Host+" "+r.RequestURI)
		w.WriteHeader(http.StatusTeapot)
		if _, err := w.Write(body); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /quiet", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panic", func(http.ResponseWriter, *http.Request) { panic("oh") })
	ctx, cancel := context.WithCancel(t.Context())
	mux.HandleFunc("GET /gone", func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	client := &http.Client{Transport: chat.Transport{Handler: mux}}
	type answer struct {
		status int
		length int64
		header http.Header
		text   string
	}
	do := func(method, path, body string) (answer, error) {
		req, err := http.NewRequestWithContext(ctx, method, "http://policy"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.ContentLength, resp.Header, string(text)}, err
	}

	a, err := do(http.MethodPost, "/v1/echo?x=1", "hello")
	if err != nil || a.text != "hello" || a.status != http.StatusTeapot || a.length != 5 {
		t.Errorf("echo: %+v, %v", a, err)
	}
	if got := a.header.Get("X-Host"); got != "policy /v1/echo?x=1" {
		t.Errorf("the handler saw %q", got)
	}
	if a, err := do(http.MethodGet, "/quiet", ""); err != nil || a.status != http.StatusOK || a.text != "" {
		t.Errorf("quiet: %+v, %v", a, err)
	}
	if a, err := do(http.MethodGet, "/nowhere", ""); err != nil || a.status != http.StatusNotFound {
		t.Errorf("nowhere: %+v, %v", a, err)
	}
	if _, err := do(http.MethodGet, "/panic", ""); err == nil || !strings.Contains(err.Error(), "the handler of /panic panicked: oh") {
		t.Errorf("panic: %v", err)
	}
	if _, err := do(http.MethodGet, "/gone", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("gone: %v", err)
	}
}
