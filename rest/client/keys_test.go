package client_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// Keys are managed by a client with the token, used by clients with keys, and checked by
// servers that ask.
func TestKeys(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	handler, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: access.NewKeys(store)})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(handler)
	t.Cleanup(api.Close)
	open := func(config client.Config) *client.Client {
		config.RetryTimeout = -1
		if config.URL == "" {
			config.URL = api.URL
		}
		c, err := client.New(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	root := open(client.Config{Token: "s3cret"})
	created, err := root.CreateKey(t.Context(), access.NewKey{Name: "gpu", Scopes: access.Runner, Expire: time.Hour})
	if err != nil || created.CreatedBy != "root" || created.ExpireTime == nil {
		t.Fatalf("got %+v, %v", created, err)
	}
	runner := open(client.Config{Token: created.Text})
	inURL := open(client.Config{URL: "http://agl:" + created.Text + "@" + api.Listener.Addr().String()})
	for _, c := range []*client.Client{runner, inURL} {
		who, err := c.WhoAmI(t.Context())
		if err != nil || who.KeyID != created.ID || who.Scopes != access.Runner || who.Expire.IsZero() {
			t.Errorf("got %+v, %v", who, err)
		}
	}
	if _, err := runner.ListKeys(t.Context()); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("a runner lists keys: %v", err)
	}
	if _, err := runner.CreateKey(t.Context(), access.NewKey{Name: "more", Scopes: access.Admin}); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("a runner makes keys: %v", err)
	}

	// A runner has no token to make span tokens from, and gets them from the store.
	for name, token := range map[string]string{"root": "s3cret", "runner": created.Text} {
		tokens, err := client.SpanTokens(client.Config{URL: api.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		span, err := tokens(t.Context(), "ro/1", "at 1")
		if err != nil || span == "" {
			t.Fatalf("%s: got %q, %v", name, span, err)
		}
		if who, err := open(client.Config{Token: span}).WhoAmI(t.Context()); agl.ErrorCode(err) != agl.CodeUnauthorized {
			t.Errorf("%s: a span token is good for more than spans: %+v, %v", name, who, err)
		}
	}

	for name, c := range map[string]struct {
		asking *client.Client
		want   agl.Code
	}{
		"a server without a key of its own": {open(client.Config{}), ""}, "one with a key": {runner, ""}, "one whose own key is wrong": {open(client.Config{Token: "wrong"}), agl.CodeUnavailable},
	} {
		who, err := c.asking.Keys().Check(t.Context(), created.Text)
		if agl.ErrorCode(err) != c.want || c.want == "" && who.KeyID != created.ID {
			t.Errorf("%s: got %+v, %v, want %q", name, who, err, c.want)
		}
	}
	var log strings.Builder
	wrong := open(client.Config{Token: "wrong", Logger: slog.New(slog.NewTextHandler(&log, nil))}).Keys()
	for _, key := range []string{created.Text, "agl_aaaaaaaaaaaa_other"} {
		if _, err := wrong.Check(t.Context(), key); agl.ErrorCode(err) != agl.CodeUnavailable {
			t.Errorf("asking with a wrong token: %v", err)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "refuses this server's own token") || !strings.Contains(text, api.URL) || strings.Contains(text, "aaaa_other") {
		t.Errorf("the log of a server with a wrong token: %q", text)
	}
	asking := root.Keys()
	if who, err := asking.Check(t.Context(), created.Text); err != nil || who.KeyID != created.ID {
		t.Errorf("got %+v, %v", who, err)
	}
	if _, err := asking.Check(t.Context(), "agl_aaaaaaaaaaaa_unknown"); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := root.RevokeKey(t.Context(), created.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := runner.WhoAmI(t.Context()); agl.ErrorCode(err) != agl.CodeUnauthorized {
		t.Errorf("a revoked key: %v", err)
	}
	keys, err := root.ListKeys(t.Context())
	if err != nil || len(keys) != 1 || keys[0].State(time.Now()) != access.StateRevoked {
		t.Errorf("got %+v, %v", keys, err)
	}
	if _, err := root.RevokeKey(t.Context(), "nobody"); agl.ErrorCode(err) != agl.CodeNotFound {
		t.Errorf("an unknown id: %v", err)
	}
}

// A certificate may be for what stands before a store that makes no span tokens, such as Agent-lightning's: agents then send their
// spans without one. A key that such a store does not know how to use is an error.
func TestSpanTokensOfAnotherStore(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	shown := &tls.Config{Certificates: []tls.Certificate{{}}, MinVersion: tls.VersionTLS12}
	for name, c := range map[string]struct {
		token string
		want  agl.Code
	}{"certificate": {"", ""}, "key": {"agl_aaaaaaaaaaaa_secret", agl.CodeUnimplemented}} {
		tokens, err := client.SpanTokens(client.Config{URL: other.URL, Token: c.token, TLS: shown})
		if err != nil {
			t.Fatal(err)
		}
		if token, err := tokens(t.Context(), "ro-1", "at-1"); token != "" || agl.ErrorCode(err) != c.want {
			t.Errorf("%s: got %q, %v, want no token and the code %q", name, token, err, c.want)
		}
	}
}
