package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access/oidc/oidctest"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/client"
)

// A client certificate has the scopes that its name was given, and none is worth nothing.
// Sessions of a store with TLS are for HTTPS only.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		m := &Main{Stdout: io.Discard, Stderr: io.Discard}
		if err := m.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if err := m.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	run("cert", dir)
	run("cert", dir, "--client", "--name=reader")
	run("cert", dir, "--client", "--name=stranger")
	address, stop, err := startServer("store", "--db=memory:", "--port=0", "--token=secret", "--tls-cert="+file("server.pem"), "--tls-key="+file("server.key"),
		"--tls-client-ca="+file("ca.pem"), "--tls-client=reader=read,ingest", "--tls-client=other=admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	const enqueue = "/v1/agl/queues/rollouts/enqueue"
	for name, want := range map[string][3]int{"reader": {200, 403, 200}, "stranger": {401, 401, 200}, "": {401, 401, 200}} {
		config, err := httpserver.Trust{CAFile: file("ca.pem")}.Config()
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			pair, err := tls.LoadX509KeyPair(file(name+".pem"), file(name+".key"))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		for i, send := range []struct{ method, path, body string }{
			{http.MethodGet, "/v1/agl/rollouts", ""}, {http.MethodPost, enqueue, `{"rollouts":[{"input":1}]}`}, {http.MethodPost, "/v1/agl/login", `{"key":"secret"}`},
		} {
			r, err := http.NewRequestWithContext(t.Context(), send.method, address+send.path, strings.NewReader(send.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want[i] {
				t.Errorf("%q: %s %s: %s, want %d", name, send.method, send.path, answer.Status, want[i])
			}
			if cookie := answer.Header.Get("Set-Cookie"); strings.HasSuffix(send.path, "login") && !strings.Contains(cookie, "Secure") {
				t.Errorf("Set-Cookie: %s", cookie)
			}
		}
	}
}

// Each project has the grants that are for it, and sessions of its own.
func TestSignInToProjects(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ana": {"research"}, "ops": {"platform"}}, InIDToken: true})
	address, stop, err := startServer("store", "--projects="+t.TempDir(), "--port=0", "--token=secret", "--jwt-issuer="+provider.URL, "--jwt-audience="+oidctest.Audience,
		"--jwt-group=research=read@search", "--jwt-group=platform=admin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	browser := oidctest.Browser(t)
	ask := func(client *http.Client, method, path, body, token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for _, name := range []string{"search", "ads"} {
		if status := ask(http.DefaultClient, http.MethodPost, "/v1/agl/projects", `{"name":"`+name+`"}`, "secret"); status != 201 {
			t.Fatalf("project %s: %d", name, status)
		}
	}
	ana, ops := provider.MachineToken(t, "ana"), provider.MachineToken(t, "ops")
	if status := ask(browser, http.MethodPost, "/p/search/v1/agl/login", `{"key":"secret"}`, ""); status != 200 {
		t.Errorf("sign in: %d", status)
	}
	for path, want := range map[string][3]int{"/p/search/v1/agl/rollouts": {200, 200, 200}, "/p/ads/v1/agl/rollouts": {401, 200, 401}, "/v1/agl/rollouts": {401, 200, 401}} {
		got := [3]int{ask(http.DefaultClient, http.MethodGet, path, "", ana), ask(http.DefaultClient, http.MethodGet, path, "", ops), ask(browser, http.MethodGet, path, "", "")}
		if got != want {
			t.Errorf("%s: %v, want %v (a member of a group for search, one of a group for all, a session of search)", path, got, want)
		}
	}
}

// A runner that is known by a JWT or a certificate has no token of the store to make those of its agents from, and gets them from
// the store: without, the store refused what agents sent.
func TestSpanTokensWithoutTheStoresToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, args := range [][]string{{"cert", dir}, {"cert", dir, "--client", "--name=gpu"}} {
		m := &Main{Stdout: io.Discard, Stderr: io.Discard}
		if err := m.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if err := m.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	provider := oidctest.Start(t, oidctest.Config{Groups: map[string][]string{"ci": {"gpus"}}})
	address, stop, err := startServer("store", "--db=memory:", "--port=0", "--token=secret", "--tls-cert="+file("server.pem"), "--tls-key="+file("server.key"),
		"--tls-client-ca="+file("ca.pem"), "--tls-client=gpu=runner", "--jwt-issuer="+provider.URL, "--jwt-audience="+oidctest.Audience, "--jwt-group=gpus=runner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for name, c := range map[string]struct {
		trust httpserver.Trust
		token string
	}{
		"JWT":         {httpserver.Trust{CAFile: file("ca.pem")}, provider.MachineToken(t, "ci")},
		"certificate": {httpserver.Trust{CAFile: file("ca.pem"), CertFile: file("gpu.pem"), KeyFile: file("gpu.key")}, ""},
	} {
		settings, err := c.trust.Config()
		if err != nil {
			t.Fatal(err)
		}
		config := client.Config{URL: address, Token: c.token, TLS: settings}
		tokens, err := client.SpanTokens(config)
		if err != nil || tokens == nil {
			t.Fatalf("%s: %v, makes tokens: %v", name, err, tokens != nil)
		}
		store, err := client.New(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		a, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		token, err := tokens(t.Context(), a.RolloutID, a.Attempt.AttemptID)
		if err != nil || token == "" {
			t.Fatalf("%s: token %q, %v", name, token, err)
		}
		agent, err := httpserver.Trust{CAFile: file("ca.pem")}.Config()
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/traces", strings.NewReader(fmt.Sprintf(
			`{"resourceSpans":[{"resource":{"attributes":[{"key":%q,"value":{"stringValue":%q}},{"key":%q,"value":{"stringValue":%q}}]},"scopeSpans":[{"spans":[{"traceId":"%032x","spanId":"%016x","name":"step"}]}]}]}`,
			agl.AttrRolloutID, a.RolloutID, agl.AttrAttemptID, a.Attempt.AttemptID, 1, 1)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: agent, DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: the agent's spans: %s", name, answer.Status)
		}
	}
}

// What cannot work is said before the store starts.
func TestSignInFlags(t *testing.T) {
	t.Parallel()
	oidc := []string{"--oidc-issuer=https://id.example", "--oidc-client-id=a", "--oidc-group=g=read", "--public-url=https://agl.example"}
	for want, args := range map[string][]string{
		"lets everybody in":     oidc,
		"must be a URL":         {"--token=t", "--oidc-issuer=https://id.example", "--oidc-client-id=a", "--oidc-group=g=read"},
		"--public-url=agl:4747": {"--public-url=agl:4747"},
		"at least one group":    {"--token=t", "--jwt-issuer=https://id.example", "--jwt-audience=a"},
		"audience: must not":    {"--token=t", "--jwt-issuer=https://id.example", "--jwt-group=g=read"},
		"one for machines":      append([]string{"--token=t", "--jwt-issuer=https://id.example", "--jwt-audience=a", "--jwt-group=g=read"}, oidc...),
		"need --oidc-issuer":    {"--token=t", "--oidc-group=g=read"},
		"need --jwt-issuer":     {"--token=t", "--jwt-group=g=read"},
		"needs --tls-client-ca": {"--token=t", "--tls-client=a=read"},
		"must be one of read":   {"--token=t", "--tls-client=a=root"},
		"agent is for":          {"--token=t", "--tls-client=a=agent"},
		"must be NAME=SCOPE":    {"--token=t", "--tls-client=read"},
		"after @":               {"--token=t", "--tls-client=a=read@"},
	} {
		err := (&Main{Stdout: io.Discard, Stderr: io.Discard}).ParseFlags(append([]string{"store", "--db=memory:"}, args...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}
