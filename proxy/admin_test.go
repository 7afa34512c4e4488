package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/google/go-cmp/cmp"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	good := proxy.Model{Name: "m", BaseURL: "http://h/v1"}
	for want, cfg := range map[string]proxy.Config{
		"models[1].name":        {Models: []proxy.Model{good, {BaseURL: "http://h"}}},
		"base_url":              {Models: []proxy.Model{{Name: "m", BaseURL: "h:80/v1"}}},
		"api_key":               {Models: []proxy.Model{{Name: "m", BaseURL: "http://h", APIKey: "env:"}}},
		"StoreRetry":            {StoreRetry: -1},
		"PublicURL":             {PublicURL: "localhost"},
		"a URL with #f":         {Models: []proxy.Model{{Name: "m", BaseURL: "http://h/v1#f"}}},
		"must have at least 16": {Models: []proxy.Model{good}, KeySecret: "env:S", LookupEnv: func(string) (string, bool) { return "fifteen letters", true }},
		"append":                {Models: []proxy.Model{{Name: "m", BaseURL: "http://h/v1/chat/completions"}}},
		"agents append":         {PublicURL: "http://me:1/v1?key=k"},
	} {
		if _, err := proxy.New(cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	p, err := proxy.New(proxy.Config{Models: []proxy.Model{good}, PublicURL: "http://me:1/v1/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetModels([]proxy.Model{{}}); err == nil || len(p.Models()) != 1 {
		t.Errorf("a list that is refused: %v, %v", err, p.Models())
	}
	resource, err := p.AsResource("", []byte(`{"temperature":1.0}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"resource_type":"proxy_llm","endpoint":"http://me:1/v1","model":"m","api_key":null,"sampling_parameters":{"temperature":1.0}}`
	if diff := cmp.Diff(want, string(resource.AppendJSON(nil))); diff != "" {
		t.Error(diff)
	}
	if url, err := resource.BaseURL("r/1", "a"); err != nil || url != "http://me:1/rollout/r%2F1/attempt/a/v1" {
		t.Errorf("%s %v", url, err)
	}
	if err := p.SetModels(nil); err != nil {
		t.Error(err)
	}
	if _, err := p.AsResource("", nil); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a resource without a model: %v", err)
	}
	closed(t, p)
}

// A web page, of another site or under a name that was made to point here, must not
// operate a proxy that asks for no token, nor use its models.
func TestPagesOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := unplugged(t, always, &spans{}, func(c *proxy.Config) { c.PublicURL = "http://models.example:4748" })
		for _, tc := range []struct {
			what, path, host, origin string
			status                   int
		}{
			{"a program", "/admin/resume", "127.0.0.1:4748", "", 200},
			{"a page of another site", "/admin/pause", "127.0.0.1:4748", "https://evil.example", 403},
			{"a page by another name", "/admin/pause", "evil.example:4748", "", 403},
			{"a page that calls a model", "/v1/chat/completions", "127.0.0.1:4748", "https://evil.example", 403},
			{"a page that calls a model by another name", "/v1/chat/completions", "evil.example:4748", "http://evil.example:4748", 403},
			{"a program that calls a model by another name", "/v1/chat/completions", "proxy.internal:4748", "", 400},
			{"a page of the public URL", "/v1/chat/completions", "models.example:4748", "http://models.example:4748", 400},
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.path, strings.NewReader("{}"))
			r.Host, r.RemoteAddr = tc.host, "127.0.0.1:5"
			r.Header.Set("Content-Type", "application/json")
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if w.Code != tc.status {
				t.Errorf("%s: %d %s, want %d", tc.what, w.Code, w.Body, tc.status)
			}
		}
		if p.PauseState().Mode != "" {
			t.Error("a page has paused the proxy")
		}
		closed(t, p)
	})
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, token := range []string{"", "s3cret"} {
			store := &spans{}
			p := unplugged(t, always, store, func(c *proxy.Config) {
				c.Token = token
				c.Models[0].APIKey, c.AllowEnv = "sk-very-secret", []string{"K"}
			})
			local := &http.Client{Transport: through{p, "127.0.0.1:5"}}
			remote := &http.Client{Transport: through{p, "10.0.0.1:5"}}
			good := &proxy.Client{BaseURL: "http://localhost/", Token: token, HTTP: remote}
			if token == "" {
				good.HTTP = local
				bad := &proxy.Client{BaseURL: "http://localhost", HTTP: remote}
				if err := bad.Flush(t.Context(), nil); !errors.Is(err, agl.ErrUnauthorized) {
					t.Errorf("from elsewhere without a token: %v", err)
				}
			} else {
				for _, wrong := range []string{"", "s3cre", "s3cret2"} {
					bad := &proxy.Client{BaseURL: "http://localhost", Token: wrong, HTTP: local}
					if err := bad.SetModels(t.Context(), nil); !errors.Is(err, agl.ErrUnauthorized) {
						t.Errorf("token %q: %v", wrong, err)
					}
				}
			}
			call(t.Context(), p, attemptPath)
			if err := good.Flush(t.Context(), []string{"ro-1"}); err != nil || len(store.calls()) != 1 {
				t.Errorf("flush: %v, %d calls", err, len(store.calls()))
			}
			call(t.Context(), p, attemptPath)
			if w := call(t.Context(), p, "/rollout/ro-1/attempt/at-1/flush"); w.Code != http.StatusOK || len(store.calls()) != 2 {
				t.Errorf("flush by the attempt: %d %s, %d calls", w.Code, w.Body, len(store.calls()))
			}
			list := admin(t, good.HTTP, token, http.MethodGet, "/admin/models", "")
			if strings.Contains(list, "very-secret") || !strings.Contains(list, `"base_url":"http://backend/v1"`) {
				t.Errorf("models: %s", list)
			}
			want := []proxy.Model{{Name: "x", BaseURL: "http://other/v1", BackendModel: "y", APIKey: "env:K", Version: "2", TextOnly: true}}
			if err := good.SetModels(t.Context(), want); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, p.Models()); diff != "" {
				t.Error(diff)
			}
			if err := good.SetModels(t.Context(), []proxy.Model{{Name: "x"}}); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "base_url") {
				t.Errorf("a wrong model: %v", err)
			}
			put := func(api string) string {
				return admin(t, good.HTTP, token, http.MethodPut, "/admin/models", fmt.Sprintf(`{"models":[{"name":"x","base_url":"http://b/v1","api":%q}]}`, api))
			}
			if got := put("openai"); len(p.Models()) != 1 || p.Models()[0].BaseURL != "http://b/v1" || p.Models()[0].API != proxy.APIOpenAI {
				t.Errorf("a model of the API openai: %s", got)
			}
			if got := put("google"); !strings.Contains(got, "openai") || !strings.Contains(got, "google") {
				t.Errorf("a model of an API that is not known: %s", got)
			}
			for body, want := range map[string]string{`{"rollout_ids":3}`: "rollout_ids", `{"rollout":[]}`: `unknown`, `[`: "body"} {
				if got := admin(t, good.HTTP, token, http.MethodPost, "/admin/flush", body); !strings.Contains(got, want) || !strings.Contains(got, `"error"`) {
					t.Errorf("%s: %s", body, got)
				}
			}
			for path, body := range map[string]string{
				"/admin/attempts/key": `{"rollout_id":"ro-1","attempt_id":"at-1","seconds":%s}`, "/admin/pause": `{"mode":"drain","timeout_seconds":%s}`,
			} {
				for _, wrong := range []string{"-1", "1e10"} {
					got := admin(t, good.HTTP, token, http.MethodPost, path, fmt.Sprintf(body, wrong))
					if !strings.Contains(got, "seconds: got "+strings.Replace(wrong, "e10", "e+10", 1)+", must be from 0 to 1e+09") {
						t.Errorf("%s with %s: %s", path, wrong, got)
					}
				}
			}
			if got := admin(t, good.HTTP, token, http.MethodGet, "/admin/x", ""); !strings.Contains(got, "unknown admin request") {
				t.Error(got)
			}
			closed(t, p)
		}
	})
}

// through serves requests by a handler, as coming from an address.
type through struct {
	handler http.Handler
	from    string
}

func (h through) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.RemoteAddr = h.from
	if r.Body == nil {
		r.Body = http.NoBody
	}
	h.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func admin(t *testing.T, client *http.Client, token, method, path, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// Whoever sets models over HTTP cannot have a variable of the proxy's environment sent to a server of
// their choice: only to one for which the operator has named it, or if it is allowed by name.
func TestModelsOfOthersAndTheEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"BACKEND_KEY": "k1", "OPEN_KEY": "k2", "AGL_TOKEN": "the-token", "SECRET": "s"}
	var seen atomic.Pointer[string]
	p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
		text := r.URL.Host + " " + r.Header.Get("Authorization")
		seen.Store(&text)
		return respond(http.StatusOK, nil, usedBody), nil
	}, func(c *proxy.Config) {
		c.Models[0].APIKey, c.AllowEnv = "env:BACKEND_KEY", []string{"OPEN_KEY", "AGL_TOKEN"}
		c.LookupEnv = func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	}, "one")
	closeAtEnd(t, p)
	for _, tc := range []struct {
		host, key string
		status    int
	}{
		{"evil", "env:AGL_TOKEN", 400}, {"one", "env:AGL_TOKEN", 400}, {"evil", "env:SECRET", 400}, {"evil", "env:BACKEND_KEY", 400}, {"one:8080", "env:BACKEND_KEY", 400}, {"one", "env:BACKEND_KEY", 200},
		{"two", "env:OPEN_KEY", 200}, {"two", "a key", 200}, {"one", "env:BACKEND_KEY", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/admin/models", strings.NewReader(fmt.Sprintf(`{"models":[{"name":"m","base_url":"http://%s/v1","api_key":%q}]}`, tc.host, tc.key)))
		r.RemoteAddr, r.Host = "127.0.0.1:1", "127.0.0.1:4748"
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != tc.status || tc.status == 400 && !strings.Contains(w.Body.String(), "--allow-env") {
			t.Errorf("%s to %s: %d %s, want %d", tc.key, tc.host, w.Code, w.Body, tc.status)
		}
		if w := ask(t.Context(), p, "/v1/chat/completions", `{"model":"m","messages":[]}`, nil); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		want := tc.key
		if name, ok := strings.CutPrefix(tc.key, "env:"); ok {
			want = env[name]
		}
		if got := *seen.Load(); tc.status == 200 && got != tc.host+" Bearer "+want || strings.Contains(got, "the-token") || strings.Contains(got, "evil") {
			t.Errorf("%s to %s: sent %q", tc.key, tc.host, got)
		}
	}
	// The operator may.
	if err := p.SetModels([]proxy.Model{{Name: "m", BaseURL: "http://two/v1", APIKey: "env:SECRET"}}); err != nil {
		t.Error(err)
	}
}
